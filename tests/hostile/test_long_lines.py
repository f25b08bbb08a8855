"""Lines that have no end, of one character or word: what reads them takes time by their length, not by its square.

The limit is far above what a linear reader takes, and a tenth or less of what one took that was not.
"""

import pytest
from ansible.module_utils.trainyard.base.redaction import without_secrets
from ansible.module_utils.trainyard.cluster import unreachable as no_answer
from ansible.module_utils.trainyard.hardware import gpu_health
from ansible.module_utils.trainyard.nvidia import cuda
from ansible.module_utils.trainyard.software import apt
from ansible.module_utils.trainyard_node.machine.regex_limit import cpu_at_most
from test_mutated_captures import PARSERS

SIZE, LIMIT_S = 50_000, 2.0
WORDS = ["a", " ", "\t", "\r", "\n", "\n ", "0", "1 ", "a.", "#", "<a>", "=", "[", "|", "token", "secret_", "1-"]
READERS = {
    **{name: parser for name, (parser, _) in PARSERS.items()},
    "secrets": without_secrets,
    "host_config.h": cuda.newest_gcc_of,
    "no answer": lambda text: no_answer.reason({"msg": no_answer.UNREADABLE, "module_stderr": text, "rc": 1}),
}
# What stands before such a line so that it is looked at.
BEFORE = {
    "nvidia-smi nvlink": "GPU 0: A (UUID: x)\n\t Link 8: ",
    "saved networks": "|   5  NVIDIA A100-SXM...  On   | 00000",
}


@pytest.mark.parametrize("name", READERS)
def test_a_line_without_an_end_is_read_in_time(name):
    for word in WORDS:
        text = (word * SIZE)[:SIZE]
        with cpu_at_most(LIMIT_S):
            try:
                READERS[name](f"{BEFORE.get(name, '')}{text}x")
            except ValueError:
                continue  # that it cannot be read may be said, too


def test_what_no_encoding_has_and_what_is_nested_deeply_is_refused_in_words():
    found, problem = gpu_health.parse_query("<nvidia_smi_log><gpu>\udcff</gpu></nvidia_smi_log>")
    assert found == [] and problem.startswith("`nvidia-smi -q -x` printed no XML: ")
    with pytest.raises(ValueError, match="nested too deeply"):
        apt.read_record(b"[" * 100_000)
