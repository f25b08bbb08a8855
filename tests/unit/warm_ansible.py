"""ansible-playbook in forks of one process that has imported what it needs: a short run takes a quarter of its time."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
INTERRUPTS = "ansible.module_utils.trainyard_controller.ansible.interrupts"
SETTINGS = {"ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
# Settings of plugins, which are read as a plugin is loaded.
LATER = {"ANSIBLE_CALLBACK_RESULT_FORMAT", "ANSIBLE_SSH_ARGS"}


def _settings(env):
    return {name: value for name, value in env.items() if name.startswith("ANSIBLE_") and name not in LATER}


def fits(argv, env):
    """Return whether a command is ansible-playbook with the settings of most tests."""
    return Path(argv[0]).name == "ansible-playbook" and _settings(env) == SETTINGS


@functools.cache
def _server(settings):
    """Return the process for these settings, which Ansible reads as it is imported."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, __file__], cwd=PROJECT, env={**env, **dict(settings)}, **pipes)


class Process:
    """One run, in a session of its own; as a subprocess.Popen."""

    def __init__(self, argv, cwd, env, stdout, stderr, limit_s=0):
        self.args, self.returncode, self._folder = argv, None, tempfile.mkdtemp()
        server = _server(tuple(sorted(_settings(env).items())))
        files = [str(each) for each in (stdout, stderr)]
        for each in files:
            # A test may read it before the run does anything.
            Path(each).touch()
        request = [[str(word) for word in argv], str(cwd), dict(env), limit_s, files, self._folder]
        print(json.dumps(request), file=server.stdin, flush=True)
        self.pid = int(server.stdout.readline())

    def poll(self):
        """Return the exit status, None for a run that goes on."""
        status = Path(self._folder, "status")
        if self.returncode is None and status.exists():
            self.returncode = int(status.read_text())
            shutil.rmtree(self._folder)
        return self.returncode

    def wait(self, timeout=None):
        """Return the exit status once there is one. Raises TimeoutExpired."""
        until = time.monotonic() + timeout if timeout else None
        while self.poll() is None:
            if until and time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return self.returncode

    def kill(self):
        """End the run unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def run(argv, cwd, env, timeout):
    """Run ansible-playbook and return what subprocess.run does. After `timeout` seconds SIGALRM ends it."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        returncode = Process(argv, cwd, env, *files, int(timeout)).wait()
        stdout, stderr = (file.read_text() for file in files)
        return subprocess.CompletedProcess(argv, returncode, stdout, stderr)


def _call(argv, cwd, env, limit_s, files, folder):
    """Be one run."""
    from ansible import constants
    from ansible.cli.playbook import PlaybookCLI

    # The parent ends later, and then removes its folder of temporary files.
    atexit._clear()
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    random.seed()
    for number, path in enumerate((os.devnull, *files)):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    # There each run notes what is its own: requests of roles, and how far a task is.
    constants.DEFAULT_LOCAL_TMP = tempfile.mkdtemp(dir=folder)
    # It shares memory with its forks, which would be those of all runs.
    if INTERRUPTS in sys.modules:
        importlib.reload(sys.modules[INTERRUPTS])
    tempfile.tempdir, sys.argv, status = None, argv, 1
    signal.alarm(limit_s)
    try:
        PlaybookCLI.cli_executor(argv)
    except SystemExit as error:
        status = error.code or 0
    finally:
        Path(folder, "modules").write_text(" ".join(sys.modules))
        Path(folder, "options").write_bytes(pickle.dumps(constants.config._plugins))
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _Server:
    """Forks for each line of the standard input, and imports what those runs had to import."""

    def __init__(self):
        self.running, self.used, self.tried, self.options = {}, set(), set(), b""
        signal.signal(signal.SIGCHLD, self.take_ended)

    def take_ended(self, *_):
        """Write how runs have ended. Python calls it whenever one does."""
        for pid, folder in list(self.running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.running[pid]
                with contextlib.suppress(FileNotFoundError):
                    self.used |= {*Path(folder, "modules").read_text().split()}
                    self.options = Path(folder, "options").read_bytes()
                new = Path(folder, "status.new")
                new.write_text(str(os.waitstatus_to_exitcode(status)))
                new.rename(new.with_suffix(""))

    def serve(self):
        import ansible.cli.playbook
        import ansible.module_utils
        from ansible import constants
        from ansible.utils.collection_loader import _collection_finder as finder

        ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
        from ansible.module_utils.trainyard_controller.inputs import input_run

        # Each run reads all argument_specs, and 380 KB of YAML about the names of plugins.
        input_run.read_specs = functools.cache(input_run.read_specs)
        input_run.read_specs(PROJECT)
        finder._meta_yml_to_dict = functools.cache(finder._meta_yml_to_dict)
        names = Path(ansible.__file__).parent / "config/ansible_builtin_runtime.yml"
        finder._meta_yml_to_dict(names.read_bytes(), ("ansible.builtin", "runtime.yml"))
        for line in sys.stdin:
            for name in sorted(self.used - self.tried - sys.modules.keys()):
                self.tried.add(name)
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
            for kind, plugins in (pickle.loads(self.options) if self.options else {}).items():  # noqa: S301
                own = {name: each for name, each in plugins.items() if f"ansible.plugins.{kind}.{name}" in sys.modules}
                constants.config._plugins.setdefault(kind, {}).update(own)
            self.options = b""
            request = json.loads(line)
            # One that ends at once must be known when that is told.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            child = os.fork()
            if not child:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
                _call(*request)
            self.running[child] = request[-1]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            print(child, flush=True)


if __name__ == "__main__":
    _Server().serve()
