"""Runs programs by ``python``, by ``spectralgrad rescue`` and by ``spectralgrad doctor``, for comparison."""

import os
import re
import signal
import subprocess
import sys

import pytest

from spectralgrad.cli import main

NOTHING = "\nNo spectral operation was called: the program did not import torch.\n"


class ReplacedError(Exception):
    """Instead of os.execve: what this process would have been replaced by."""


def replacement(call, *arguments, **options):
    """The command line and the environment with which ``call`` replaces this process."""

    def execve(path, command, environment):
        assert path == command[0] == sys.executable
        raise ReplacedError(command, environment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "execve", execve)
        patch.setattr("spectralgrad.io.programs._options_of_python", list)
        with pytest.raises(ReplacedError) as caught:
            call(*arguments, **options)
    return caught.value.args


def run(command, environment=None, given=""):
    """Exit status, stdout and stderr, without addresses."""
    environment = environment or dict(os.environ)  # without the variables that OpenMP has set in this process
    done = subprocess.run(
        command, env=environment, input=given.encode(), capture_output=True, timeout=120, preexec_fn=_interruptible
    )
    printed = (re.sub(r"0x[0-9a-f]+", "0x", text.decode("utf-8", "replace")) for text in (done.stdout, done.stderr))
    return done.returncode, *printed


def _interruptible():
    """Undo what a shell does for commands in the background, whose children inherit it: they ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def runs(*target, **options):
    """What the program does by ``python``, by ``rescue``, and by ``doctor`` without its report."""
    status, out, err = run([sys.executable, *target], **options)
    rescued = run(*replacement(main, ["rescue", *target]), **options)
    examined = run(*replacement(main, ["doctor", *target]), **options)
    return (status, out, err), rescued, (*examined[:2], examined[2].removesuffix(NOTHING))


def write(path, text):
    """Write a file, and make its folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
