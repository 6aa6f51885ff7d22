# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.crash`: the crash suite, with any number of kills."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests import class_data
from tests.crash import breaks as deliberate
from tests.crash.break_list import BREAKS
from tests.crash.report import Report
from tests.crash.run import every_step_seen, run, run_on
from tests.crash.schedule import full_schedule, short_schedule, spark_schedule
from validator.kafka.broker import EmbeddedBroker


def crash(
    seed: Annotated[int, typer.Option(help="Determines the traffic, the kills and their order.")] = 1,
    kills: Annotated[
        int,
        typer.Option(
            min=1, help="Number of kills, episodes included; from 200 on every step has every kind of victim."
        ),
    ] = 220,
    first: Annotated[int, typer.Option(min=0, help="Begin with this kill of the schedule, counted from 0.")] = 0,
    only: Annotated[str, typer.Option(help="Only kills whose name matches this regular expression.")] = "",
    short: Annotated[bool, typer.Option("--short", help="The short schedule, as in `make test`.")] = False,
    build: Annotated[Path, typer.Option(help="Folder for report and evidence.")] = Path("build/crash"),
    brokers: Annotated[int, typer.Option(min=1, max=3, help="Number of brokers of each job: 1 or 3.")] = 1,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="The job runs on a standalone cluster of Spark with two workers.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="After a failure, continue with the next kill in a new world.")
    ] = False,
    worlds: Annotated[
        int,
        typer.Option(
            min=1, help="Number of brokers with jobs that run in parallel, each with its share of the schedule."
        ),
    ] = 1,
    world: Annotated[int | None, typer.Option(min=0, help="Only the share of this world, counted from 0.")] = None,
    breaks: Annotated[
        bool, typer.Option("--breaks", help="Break sink and store in copies of the tree; each break must be found.")
    ] = False,
) -> None:
    """Kill processes of a job and of its broker, and compare what readers see with an undisturbed run."""
    console = Console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: stops every process that was started first
    if breaks:
        raise typer.Exit(_breaks(console, only, build))
    if brokers == 2:
        raise typer.BadParameter("2, expected 1 or 3", param_hint="--brokers")
    if short:
        schedule = short_schedule(seed, brokers, on_cluster=cluster)
    else:
        schedule = (spark_schedule if cluster else full_schedule)(seed, kills, brokers)
    if worlds > 1 and world is None:
        _end(_in_parallel(console, seed, worlds, build), console, build, complete=not only)
        return
    schedule = schedule[world or 0 :: worlds]
    if only:
        schedule = [kill for kill in schedule if re.search(only, kill.name)]
    form = "--short" if short else f"--kills {kills}"
    command = f"python -m tests.crash --seed {seed} {form}" + (f" --brokers {brokers}" if brokers > 1 else "")
    command += " --cluster" if cluster else ""
    command += f" --only '{only}'" if only else ""
    command += f" --worlds {worlds} --world {world}" if worlds > 1 else ""
    carry_out = run_on if keep_going else run
    report = carry_out(
        seed,
        schedule,
        command=command,
        build=build,
        brokers=brokers,
        on_cluster=cluster,
        first=first,
        world_number=world or 0,
        log=lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True),
    )
    _end(
        report,
        console,
        build,
        complete=not only and not first and world is None and not cluster and not (short and brokers > 1),
    )


def _breaks(console: Console, only: str, build: Path) -> int:
    """Run the deliberate breaks whose name matches; return the exit code."""

    def log(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    chosen = [each for each in BREAKS if re.search(only, each.name)]
    with ExitStack() as stack:

        @cache
        def kafka() -> dict[str, object]:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="breaks-"))
            return stack.enter_context(EmbeddedBroker(Path(folder))).kafka

        try:
            results = deliberate.run_breaks(chosen, kafka=kafka, log=log)
        except (deliberate.TextMissing, deliberate.CheckFailed) as error:
            log(f"FAILED: {error}")
            return 1
    deliberate.write_json(results, build / "breaks.json")
    console.print(deliberate.table(results))
    log(f"written to {build}/breaks.json")
    return 0 if results and all(each.caught for each in results) else 1


def _in_parallel(console: Console, seed: int, worlds: int, build: Path) -> Report:
    """Run the schedule in several worlds, each a process like this one, and return their common report."""
    folders = [build / f"world-{number}" for number in range(worlds)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.crash", *sys.argv[1:], "--world", str(number), "--build", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        for number, folder in enumerate(folders)
    ]

    def follow(number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            console.print(f"{number}: {line.rstrip()}", markup=False, highlight=False, soft_wrap=True)

    followers = [threading.Thread(target=follow, args=each) for each in enumerate(processes)]
    for follower in followers:
        follower.start()
    try:
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        raise
    for follower in followers:
        follower.join()
    report = Report(seed, shlex.join(["python", "-m", "tests.crash", *sys.argv[1:]]), 0)
    for folder in folders:
        report.add(Report.read(folder / f"report-{seed}.json"))
    report.write(build / f"report-{seed}.json")
    return report


def _end(report: Report, console: Console, build: Path, *, complete: bool) -> None:
    """Show a report; exit with code 1 if something is wrong, or if a complete schedule has left a step out."""
    report.show(console)
    console.print(f"written to {build}/report-{report.seed}.json")
    if not report.wrong and complete and (unseen := every_step_seen(report)):
        console.print(f"FAILED: no process has reached {', '.join(unseen)}", style="bold red")
        raise typer.Exit(1)
    if report.wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    class_data.use()
    typer.run(crash)
