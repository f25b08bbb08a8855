"""The first job file and script that a reader copies from the docs fit any machine."""

import re
import sys
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.module_utils.trainyard.job.placement.placement import choose_devices
from ansible_run import PROJECT
from job_samples import make_job


@pytest.fixture(params=["docs/first-job.md", "docs/zh/first-job.md"])
def page(request):
    return (PROJECT / request.param).read_text()


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_the_first_job_starts_on_a_machine_with_any_number_of_gpus(gpus, page):
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    job = make_job(**{name.removeprefix("job_"): value for name, value in yaml.safe_load(text).items()})
    facts = {"accelerators": {"devices": [{"index": index} for index in range(gpus)]}}
    assert choose_devices(job, "localhost", facts) == ((), 2, [])


@pytest.mark.parametrize(("device", "backend"), [("cuda:1", "nccl"), ("cpu", "gloo")])
def test_the_first_script_computes_on_the_device_of_its_rank(device, backend, page, monkeypatch):
    torch = MagicMock()
    torch.cuda.is_available.return_value = device != "cpu"
    torch.distributed.get_rank.return_value = 1
    for name, module in {"": torch, ".distributed": torch.distributed, ".nn.parallel": torch.nn.parallel}.items():
        monkeypatch.setitem(sys.modules, f"torch{name}", module)
    monkeypatch.setitem(sys.modules, "torch.nn", torch.nn)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("os._exit", lambda status: None)
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(script, {})  # noqa: S102
    torch.distributed.init_process_group.assert_called_once_with(backend)
    torch.nn.Sequential.return_value.to.assert_called_once_with(device)
    assert {call.kwargs.get("device") for call in torch.randn.call_args_list} == {device}
