"""The kernel under sanitizers of addresses, undefined behaviour and threads, its workspace poisoned with NaN."""

import subprocess
from pathlib import Path

import pytest

from spectralgrad.native import build

pytestmark = pytest.mark.native
HERE = Path(__file__).parent / "native"
# Without the checks of undefined behaviour that double the compiler's time: the first sanitizer finds what they find.
_DOUBLE = "-fno-sanitize=null,object-size,vptr,pointer-overflow"
SANITIZERS = {
    "address and undefined": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", _DOUBLE],
    "thread": ["-fsanitize=thread"],
}


@pytest.mark.parametrize("sanitizers", SANITIZERS.values(), ids=SANITIZERS)
def test_the_kernel_is_clean_under_sanitizers(sanitizers, tmp_path):
    cxx = build.compiler()
    if cxx is None:
        pytest.skip("no C++ compiler")
    probe = tmp_path / "probe.cpp"
    probe.write_text("int main() {}\n")
    if subprocess.run([*cxx, *sanitizers, probe, "-o", tmp_path / "probe"], capture_output=True).returncode:
        pytest.skip("the compiler has no such sanitizers")
    if subprocess.run([tmp_path / "probe"], capture_output=True).returncode:
        pytest.skip("programs with these sanitizers do not run on this machine")
    flags = [flag for flag in build.FLAGS if flag != "-O3"]
    sources = [build.SRC / f"{name}.cpp" for name in (*build.SOURCES, "dispatch")] + [HERE / "exercise.cpp"]
    program = tmp_path / "exercise"
    defined = ["-DSG_NS=baseline", "-DSG_BASELINE", "-DSG_POISON"]
    command = [*cxx, "-O1", *flags, *sanitizers, *defined, *sources, "-pthread", "-o", program]
    subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worst residual" in done.stdout
