"""The profile of hypothesis for all tests: a busy machine is no fault of the code, so nothing is judged by its time."""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
