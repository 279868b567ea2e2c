"""Builds the native kernel beside the package. Where that fails, the installation goes on without it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

if int(setuptools.__version__.partition(".")[0]) < 77:
    sys.exit(
        f"spectralgrad: expected setuptools 77 or later to build with, got {setuptools.__version__}. "
        "Leave out --no-build-isolation, or: pip install --upgrade setuptools"
    )

from setuptools.command.bdist_wheel import bdist_wheel  # it came with 70.1

HERE = Path(__file__).parent
NATIVE = HERE / "spectralgrad" / "native"


class BuildKernel(build_ext):
    """Hands the one extension to spectralgrad/native/build.py; it is a plain shared library, not a Python module."""

    def get_ext_filename(self, fullname):
        """No Python in the name: any interpreter can load it."""
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext):
        """Build the kernel, or say why it is not there."""
        spec = importlib.util.spec_from_file_location("spectralgrad_native_build", NATIVE / "build.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        try:
            module.build(Path(self.get_ext_fullpath(ext.name)), Path(self.build_temp))
        except (OSError, subprocess.CalledProcessError) as problem:
            detail = getattr(problem, "stderr", "") or problem
            print(f"spectralgrad: the native kernel was not built, torch.linalg will serve: {detail}", file=sys.stderr)


class Wheel(bdist_wheel):
    """A wheel for every Python 3: of one platform with the kernel in it, of any without."""

    def get_tag(self):
        """The tags, when everything that goes into the wheel has been built."""
        built = list((Path(self.bdist_dir) / "spectralgrad" / "native").glob("_kernel.so")) if self.bdist_dir else []
        platform = super().get_tag()[2]
        return "py3", "none", platform if built else "any"


class NoModule(Extension):
    """An extension whose absence after the build is no error."""


setup(
    ext_modules=[NoModule("spectralgrad.native._kernel", sources=[], optional=True)],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": Wheel},
)
