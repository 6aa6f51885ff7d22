# SPDX-License-Identifier: Apache-2.0
"""The job prints only its own log; output of Spark and the workers goes to a file that is rotated when large."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streaming.logs import OUTPUT_LOG

PROGRAM = """
import subprocess, sys
from pathlib import Path
import streaming.logs as logs
logs.OUTPUT_LOG_BYTES_MAX = 300
with logs.own_output(Path(sys.argv[1])) as own:
    logs.logger(own).info("ready", lane="polkadot")
    print("printed", flush=True)
    for number in range(60):
        subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.stderr.write('noise {number} \\xff 100 %s' + chr(10))"], check=True)
    own.write("written\\n")
print("after", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("output")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr, folder / "logs"


def test_standard_error_has_only_log(output: tuple[str, Path]) -> None:
    log_text, _ = output
    first, *rest = log_text.splitlines()
    assert '"event": "ready"' in first
    assert rest == ["written", "after"]


def test_other_output_is_kept_up_to_size_limit(output: tuple[str, Path]) -> None:
    _, logs = output
    files = sorted(logs.iterdir())
    assert [file.name for file in files] == [OUTPUT_LOG, f"{OUTPUT_LOG}.1"]
    assert all(0 < file.stat().st_size <= 300 for file in files)
    lines = [line for file in reversed(files) for line in file.read_text(encoding="utf-8").splitlines()]
    assert lines[-1].startswith("noise 59 ")
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], 60)), "no line is lost or cut"


FLOOD = """
import os, sys
from pathlib import Path
import streaming.logs as logs
logs.OUTPUT_LOG_BYTES_MAX = 100_000
logs.LINE_CHARACTERS_MAX = 1000
with logs.own_output(Path(sys.argv[1])):
    for _ in range(100):
        os.write(1, b"no end of a line " * 1000)
    print("last", flush=True)
"""


def test_line_without_an_end_is_bounded_too(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FLOOD, str(tmp_path)], timeout=120, check=True)
    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == [OUTPUT_LOG, f"{OUTPUT_LOG}.1"]
    assert all(0 < file.stat().st_size <= 100_000 for file in files)
    assert files[0].read_text().endswith("no end of a line last\n")


HELD = """
import subprocess, sys
from pathlib import Path
import streaming.logs as logs
logs.LOG_DRAIN_S_MAX = 3600
with logs.own_output(Path(sys.argv[1])) as own:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sys.stdout.write("the last of it")
    sys.stdout.flush()
child.communicate(b"end")
"""


def test_end_does_not_wait_for_others_who_hold_the_output(tmp_path: Path) -> None:
    """Spark's JVM ends two seconds after the job has stopped it."""
    subprocess.run([sys.executable, "-c", HELD, str(tmp_path)], timeout=120, check=True)
    assert (tmp_path / "logs" / OUTPUT_LOG).read_text() == "the last of it"


FULL = """
import sys
from pathlib import Path
import streaming.logs as logs
def full(self, record): raise OSError(28, "No space left on device")
logs._Noise.shouldRollover = full
with logs.own_output(Path(sys.argv[1])) as own:
    for number in range(2000):
        print("noise", "x" * 100)
    sys.stdout.flush()
    own.write("written\\n")
"""


def test_log_on_a_full_disk_neither_stops_nor_floods_who_prints(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "written\n")


UNREAD = """
import os, sys
from pathlib import Path
import streaming.logs as logs
with logs.own_output(Path(sys.argv[1])) as own:
    log = logs.logger(own)
    log.info("ready")
    sys.stdin.read()  # until nobody reads the log
    for number in range(3_000):
        log.info("batch", batch=number)
    (Path(sys.argv[1]) / "done").touch()
"""


def test_job_continues_when_nobody_reads_its_log(tmp_path: Path) -> None:
    """The command that has started it was killed; the next one stops the job in order."""
    program = [sys.executable, "-c", UNREAD, str(tmp_path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert b"ready" in process.stderr.readline()
        process.stderr.close()
        process.stdin.close()
        assert process.wait(120) == 0
    assert (tmp_path / "done").exists()
    assert (tmp_path / "logs" / OUTPUT_LOG).read_text() == ""
