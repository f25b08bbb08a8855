"""The search of the docs' site finds what readers of the guides know: their scripts, settings and terms."""

import json
import re
import subprocess
import sys

import pytest
import snowballstemmer
from ansible_run import PROJECT

STEM = snowballstemmer.stemmer("english").stemWord


@pytest.fixture(scope="module")
def pages_of(tmp_path_factory):
    """Build the pages of the guides alone, and return what their search index finds for a query."""
    site = tmp_path_factory.mktemp("site")
    only = [
        "-D",
        "include_patterns=docs/guide*.md,docs/zh/*.md",
        "-D",
        "root_doc=docs/guides",
        "-D",
        "html_theme=basic",
    ]
    argv = ["-m", "sphinx", "-q", "-Q", *only, "-c", PROJECT / "docs", PROJECT, site]
    subprocess.run([sys.executable, *map(str, argv)], check=True, cwd=PROJECT, timeout=600)
    index = json.loads((site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")"))

    def found(query):
        numbers = []
        # As static/scorer.js splits it.
        for word in re.findall(r"(?=([\u3400-\u9fff]{2}))", query) or re.findall(r"\w+", query.lower()):
            entries = [index[place].get(STEM(word), []) for place in ("terms", "titleterms")]
            numbers.append({number for each in entries for number in ([each] if isinstance(each, int) else each)})
        return {index["docnames"][number] for number in set.intersection(*numbers)}

    return found


@pytest.mark.parametrize(
    ("query", "page"),
    [
        *((name, "guide-mindspore-gpu") for name in ("run_gpu.sh", "run_gpu_cluster.sh", "nccl_allgather.py")),
        *((name, "guide-mindspore-gpu") for name in ("OpenMPI", "DATA_PARALLEL", "AUTO_PARALLEL", "PyNative")),
        *((name, "guide-mindspore-gpu") for name in ("CheckpointConfig", "server_cert_path", "MS_SERVER_NUM")),
        *((name, "guide-mindspore-cpu") for name in ("MS_SERVER_NUM", "set_ps_context", "scheduler")),
        *((name, "guide-ascend-ocr") for name in ("ascend8p.sh", "CRNN", "hccl_tools.py", "merge_hccl.py")),
        *((name, "guide-pytorch-v100") for name in ("nvidia-smi -pm", "pip3 install torchrun", "custom_data", "nvcc")),
        *((name, "guide-oneflow") for name in ("consistent view", "ctrl_port", "gpu_device_num")),
        *((name, "zh/glossary") for name in ("免密登录", "断点续训", "集合通信", "备用节点", "掉卡", "多机多卡")),
        *((name, "guides") for name in ("trains.sh", "distributed_train.py")),
    ],
)
def test_the_words_of_a_guide_lead_to_its_page(pages_of, query, page):
    assert f"docs/{page}" in pages_of(query)
