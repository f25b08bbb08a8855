"""Questions that a host of an allocation answers in forks of one process, and the compiled program that it keeps."""

import asyncio
import faulthandler
import io
import os
import subprocess
import sys
import time
import zipfile
import zipimport
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_controller.nodes import agent_code
from ansible.module_utils.trainyard_node import agent, keep
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.schedulers import answering
from job_cluster import wait_for


def where():
    return {"pid": os.getpid(), "parent": os.getppid()}


def slow():
    time.sleep(600)


def crash():
    os.abort()


def stuck():
    """Never come back to Python's handlers of signals, as a call into a library may."""
    agent.signal.setitimer(agent.signal.ITIMER_REAL, 0)
    time.sleep(600)


@pytest.fixture
def answers(monkeypatch):
    """Return the answers of one process to questions with a time limit, which it is asked at the same time."""
    monkeypatch.setitem(agent.QUESTIONS, "where", where)
    for question in (slow, crash, stuck):
        monkeypatch.setitem(agent.QUESTIONS, question.__name__, question)
    monkeypatch.setattr(answering, "LATE_S", 4.0)
    # pytest's own time limit has a thread, which forks that set one would wait for.
    faulthandler.cancel_dump_traceback_later()
    warm = answering.Answering(agent.answer)

    def ask(*questions, limit_s=60.0):
        async def main():
            return await asyncio.gather(*(warm.answer(question, {}, limit_s) for question in questions))

        return asyncio.run(main())

    yield ask
    warm.close()


def test_each_question_has_a_fork_of_one_process(answers):
    first, second = answers("where", "where")
    assert first["parent"] == second["parent"] and len({os.getpid(), *first.values(), *second.values()}) == 4
    wait_for(lambda: process_table.start_time(first["pid"]) is None, "the fork to be gone")


def test_a_question_without_an_end_and_a_crash_leave_the_others_alone(answers):
    crashed, unknown = answers("crash", "nothing")
    assert "ended without an answer" in crashed["msg"] and "KeyError" in unknown["msg"]
    late, stopped = answers("slow", "stuck", limit_s=1.0)
    assert "no answer within 1 s" in late["msg"] and "ended without an answer" in stopped["msg"]
    assert answers("where")[0]["pid"]


def texts(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        for name, text in files.items():
            made.writestr(f"{name}.py", text)
    return content.getvalue()


def test_a_program_is_compiled_once_and_again_where_it_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = tmp_path / f"trainyard-{os.geteuid()}"
    code = texts(__main__="")
    kept = keep.keep("ab", lambda: code)
    assert keep.keep("ab", lambda: pytest.fail("read again")) == kept
    with zipfile.ZipFile(kept) as made:
        assert made.namelist() == ["__main__.py", "__main__.pyc"]
    (folder / "older").touch()
    os.utime(folder / "older", (0, 0))
    Path(kept).write_bytes(b"")
    # What another process would know of the file.
    zipimport._zip_directory_cache.clear()
    assert keep.keep("ab", lambda: code) == kept and zipfile.is_zipfile(kept)
    assert list(folder.iterdir()) == [Path(kept)]


def test_a_folder_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = tmp_path / f"trainyard-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert not keep.keep("ab", lambda: texts(a="")).startswith(f"{folder}/") and list(folder.iterdir()) == []


def test_the_kept_program_is_the_one_of_the_job(tmp_path):
    """It runs ranks, too, and the folder of the job has it."""
    kept = tmp_path / "trainyard.pyz"
    kept.write_bytes(keep._compiled(agent_code._code(), "here"))
    argv = [sys.executable, "-IS", str(kept)]
    packed = "from agent.trainyard_node.job.run.packing import packed; print(len(packed()))"
    found = subprocess.run(
        [*argv[:2], "-c", f"import sys; sys.path.insert(0, {str(kept)!r}); {packed}"], capture_output=True
    )
    assert int(found.stdout) == kept.stat().st_size
    done = subprocess.run([*argv, "nonsense"], capture_output=True, text=True)
    assert (done.returncode, "unknown command 'nonsense'" in done.stderr) == (64, True)
