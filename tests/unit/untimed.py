"""The profile of hypothesis for all tests: no test fails because a machine is busy, and each change tries some."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "untimed", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("untimed")
