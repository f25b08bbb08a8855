"""Which torchvision belongs to which torch, by the variables of the role pytorch."""

import json
import subprocess
import sys

import pytest
from actions import PROJECT

# Ansible's controller, in a process of its own.
RENDER = """
import json, sys, yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
given = json.load(sys.stdin)
texts = yaml.safe_load(open("roles/pytorch/vars/main.yml"))
variables = {name: trust_as_template(text) if isinstance(text, str) else text for name, text in texts.items()}
templar = Templar(loader=DataLoader(), variables={**variables, **given})
names = ("__pytorch_vision_pins", "__pytorch_findings")
print(json.dumps([templar.template(variables[name]) for name in names]))
"""
GIVEN = {
    **{"pytorch_version": "2.13.0", "pytorch_build": "", "pytorch_python_min": "", "pytorch_python_max": ""},
    **{"pytorch_index_url": "", "pytorch_extra_index_urls": [], "pytorch_find_links": [], "pytorch_builds_url": ""},
}


@pytest.mark.parametrize(
    ("given", "pins", "faults"),
    [
        ({"pytorch_torchvision": ""}, [], []),
        # The wheel of torchvision 0.28.0 asks for torch 2.13.0.
        ({"pytorch_torchvision": "auto"}, ["torchvision==0.28.0", "pillow==11.3.0"], []),
        (
            {"pytorch_torchvision": "auto", "pytorch_version": "2.7.1", "pytorch_build": "cu118"},
            ["torchvision==0.22.1+cu118", "pillow==11.3.0"],
            [],
        ),
        (
            {"pytorch_torchvision": "new"},
            ["torchvision==new", "pillow==11.3.0"],
            ["pytorch_torchvision is 'new', expected auto, an exact release such as 0.28.0, or ''."],
        ),
    ],
)
def test_torchvision_comes_on_request_as_it_belongs_to_torch(given, pins, faults):
    done = subprocess.run(
        [sys.executable, "-c", RENDER],
        input=json.dumps({**GIVEN, **given}),
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [pins, faults]
