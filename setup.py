"""Builds the native kernel together with the package. If that fails, the package is installed without it."""

import contextlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import setuptools
from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

if int(setuptools.__version__.partition(".")[0]) < 77:
    sys.exit(
        f"spectralgrad: the build requires setuptools 77 or later, got {setuptools.__version__}. "
        "Omit --no-build-isolation, or run: pip install --upgrade setuptools"
    )

from setuptools.command.bdist_wheel import bdist_wheel  # new in 70.1, hence after the check above

HERE = Path(__file__).parent
NATIVE = HERE / "spectralgrad" / "native"


def _load(name):
    """Import a file of the kernel's folder from its path: importing the package would need torch."""
    spec = importlib.util.spec_from_file_location(f"spectralgrad_native_{name}", NATIVE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kernel, missing = _load("build"), _load("missing")


def say(text):
    """Print on stderr and, because pip shows that with -v only, in the terminal."""
    print(text, file=sys.stderr, flush=True)
    if not sys.stderr.isatty():
        with contextlib.suppress(OSError), open("CONOUT$" if sys.platform == "win32" else "/dev/tty", "w") as terminal:
            terminal.write(f"\r\n{text}\r\n")


class Build(build):
    """Starts without the files of an earlier build, because a wheel has everything that lies in their folder."""

    def run(self):
        """Empty the folder of the package, unless it is the source itself, and build."""
        package = Path(self.build_lib, "spectralgrad").resolve()
        if package != HERE.resolve() / "spectralgrad":
            shutil.rmtree(package, ignore_errors=True)
        super().run()


class BuildKernel(build_ext):
    """Builds the kernel with spectralgrad/native/build.py; it is a plain shared library, not a Python module."""

    def get_ext_filename(self, fullname):
        """A file name without the tag of a Python version, because any interpreter can load the library."""
        return str(Path(*fullname.split(".")).with_name(kernel.FILE))

    def build_extension(self, ext):
        """Build the kernel, or print why it cannot be built. An older one is removed first."""
        target = Path(self.get_ext_fullpath(ext.name))
        target.unlink(missing_ok=True)
        try:
            kernel.build_for_this_machine(target, say)
        except (OSError, ValueError, subprocess.CalledProcessError) as problem:
            print(getattr(problem, "stderr", "") or "", file=sys.stderr)
            say(f"spectralgrad: the native kernel was {missing.NOT_BUILT} ({problem})")

    def copy_extensions_to_source(self):
        """Put the kernel into the source tree, for an editable installation, in place of an older one."""
        old, new = NATIVE / kernel.FILE, Path(self.build_lib, "spectralgrad", "native", kernel.FILE)
        if old.exists() and not new.exists():
            print("spectralgrad: the kernel of an earlier build was removed from the source tree", file=sys.stderr)
        old.unlink(missing_ok=True)
        super().copy_extensions_to_source()


class Wheel(bdist_wheel):
    """A wheel for every Python 3; for one platform if it contains the kernel, otherwise for any."""

    def get_tag(self):
        """The tags of the wheel; called after the kernel has been built."""
        built = self.bdist_dir and Path(self.bdist_dir, "spectralgrad", "native", kernel.FILE).exists()
        return "py3", "none", super().get_tag()[2] if built else "any"


class NoModule(Extension):
    """An extension that may be missing after the build."""


setup(
    ext_modules=[NoModule("spectralgrad.native._kernel", sources=[], optional=True)],
    cmdclass={"build": Build, "build_ext": BuildKernel, "bdist_wheel": Wheel},
)
