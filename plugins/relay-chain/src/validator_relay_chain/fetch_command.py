# SPDX-License-Identifier: Apache-2.0
"""`validator fetch`: write the blocks of a chain, with the storage that their conversion reads, to files."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from validator.cli.command_api import (
    UserError,
    VisibleConsole,
    load_config,
    say,
    terminated_as_interrupted,
    transport_config,
)
from validator_relay_chain.archive import Range, ends_of, missing_ranges, ranges_of
from validator_relay_chain.backfill import Work, fetch_range
from validator_relay_chain.config import ChainSource
from validator_relay_chain.display import LINE_S, duration
from validator_relay_chain.errors import FollowError
from validator_relay_chain.limits import FETCH_PROCESSES, FETCH_PROCESSES_MAX, IN_FLIGHT_MAX
from validator_relay_chain.metadata import MetadataCache
from validator_relay_chain.pool import Clock, NodePool, Stopped
from validator_relay_chain.position import Position
from validator_relay_chain.source import Chain
from validator_relay_chain.transport import NAME, read_start

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

LOOK_S: Final = 0.5
"""Seconds between two looks at how far the ranges are."""
LOCK: Final = "fetch.lock"


@app.command()
def fetch(
    lane: Annotated[
        str, typer.Option("--lane", metavar="NAME", help="Name of the lane, for example polkadot.")
    ] = "polkadot",
    to_block: Annotated[
        int | None,
        typer.Option(
            "--to-block",
            min=2,
            metavar="M",
            help="Last block to fetch. Default: to_block of the configuration, or the last finalised block.",
        ),
    ] = None,
    config_path: Annotated[
        Path, typer.Option("--config", help="Configuration file, which `validator follow --prepare` writes.")
    ] = Path("validator.toml"),
    in_flight: Annotated[
        int | None,
        typer.Option(
            "--in-flight",
            min=1,
            max=IN_FLIGHT_MAX,
            metavar="N",
            help="Blocks that each process asks for at once. Default: in_flight of the configuration.",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            min=1,
            max=FETCH_PROCESSES_MAX,
            metavar="N",
            help="Processes that fetch ranges; with several nodes each begins with another one.",
        ),
    ] = FETCH_PROCESSES,
    spark: Annotated[
        str | None,
        typer.Option(
            "--spark",
            metavar="MASTER",
            help="Fetch the ranges as tasks of Spark, for example on spark://HOST:7077; executors share the lane's folder.",
        ),
    ] = None,
) -> None:
    """Fetch the blocks of a chain into files, with the storage that a lane and its judge need, so that following them needs no node.

    The files are in the folder `blocks` of the lane's folder, one for 512 blocks. Ranges are fetched in any order, and files that are there
    are kept: the same command continues where it was stopped or killed. `validator follow` takes its blocks from there. Exit code 0 if all
    blocks are there, 1 if it was stopped before, 2 if a node, the configuration or a file has a problem.
    """
    config = load_config(config_path)
    chains = transport_config(config, NAME).chains if NAME in config.transports else {}
    if lane not in chains:
        raise UserError(
            f"--lane: expected one with [transports.{NAME}.chains.{lane}] in {config_path}, found {', '.join(chains) or 'none'}: "
            f"`validator follow --prepare --lane {lane}` writes it"
        )
    source: ChainSource = chains[lane]
    work = Work(source, in_flight or source.in_flight)
    folder = source.blocks_folder
    try:
        first = Position.decode(read_start(source.start_path)[1]).number + 1
        with terminated_as_interrupted(), _locked(folder):
            last = to_block or source.to_block or _finalised(source)
            if last < first:
                raise UserError(
                    f"--to-block: expected a block from {first} on, with which the lane begins, found {last}"
                )
            missing = missing_ranges(ranges_of(folder), first, last)
            if missing and last > (finalised := _finalised(source)):
                raise UserError(
                    f"--to-block: expected a finalised block, of which the last is {finalised}, found {last}"
                )
            runner = _processes(work, missing, processes) if spark is None else _tasks(work, missing, spark)
            _run(folder, missing, runner)
            _check_joins(folder, first, last)
            _describe(folder, lane, first, last)
    except (FollowError, ValueError) as error:
        raise UserError(str(error)) from error


def _finalised(source: ChainSource) -> int:
    """Return the number of the last finalised block."""
    pool = NodePool(source.rpc, Clock(), genesis=Work(source, 1).genesis, tell=say)
    try:
        chain = Chain(pool, MetadataCache(source.metadata_folder))
        return chain.header(chain.finalised_head()).number
    finally:
        pool.close()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, and remove what killed processes have left. Raises `UserError` if another command fetches into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{folder}: another `validator fetch` is writing to it") from None
            for left in folder.glob(".*.new"):
                left.unlink(missing_ok=True)
            yield
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from error


def _run(folder: Path, missing: Sequence[Range], runner: Generator[None]) -> None:
    """Fetch what is missing, and show how far it is. Raises ``typer.Exit`` if it is stopped before."""
    total = sum(each.blocks for each in missing)
    if not total:
        return
    names = {each.name for each in missing}

    def fetched() -> int:
        return sum(each.blocks for each in ranges_of(folder) if each.name in names)

    began = said = time.monotonic()
    console = VisibleConsole(stderr=True)
    columns = (
        TextColumn("fetching blocks"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, said="")
        try:
            for _ in runner:
                done = fetched()
                now = time.monotonic()
                text = _rate(done, total, now - began)
                bar.update(task, completed=done, said=text)
                if not console.is_terminal and now - said >= LINE_S:
                    said = now
                    say(f"{done} of {total} blocks fetched; {text}")
        except KeyboardInterrupt:
            runner.close()
            say(f"stopped: {fetched()} of {total} blocks fetched; the same command continues")
            raise typer.Exit(1) from None
    done = fetched()
    say(f"{done} blocks fetched in {duration(time.monotonic() - began)}; {_rate(done, done, time.monotonic() - began)}")


def _rate(done: int, total: int, seconds: float) -> str:
    rate = done / seconds if seconds > 0 else 0.0
    left = f", {duration((total - done) / rate)} left" if rate and done < total else ""
    return f"{rate:.1f} blocks/s{left}"


def _check_joins(folder: Path, first: int, last: int) -> None:
    """Raise `UserError` for a range that is missing, then for files whose blocks do not follow each other."""
    there = [each for each in ranges_of(folder) if each.last >= first and each.first <= last]
    left = missing_ranges(there, first, last)
    if left:
        raise UserError(
            f"{folder / left[0].name}: expected a file once its blocks are fetched, found none: executors must share this folder"
        )
    ends = [ends_of(folder / each.name) for each in there]
    for at, (before, after) in enumerate(pairwise(there)):
        if ends[at].last != ends[at + 1].parent:
            raise UserError(
                f"{folder / after.name}: its first block is no child of the last one of {before.name}: a node has given blocks of another "
                "chain: remove both files and fetch again"
            )


def _describe(folder: Path, lane: str, first: int, last: int) -> None:
    size = sum((folder / each.name).stat().st_size for each in ranges_of(folder))
    say(
        f"{folder}: blocks {first} to {last}, {size / 1_000_000:.1f} MB; next: validator follow --lane {lane} --to-block {last}, without a "
        "node"
    )


# --- processes ---


def _processes(work: Work, missing: Sequence[Range], processes: int) -> Generator[None]:
    """Fetch ranges in processes of this machine; yield now and then. Raises `UserError` for the first range that fails."""
    context = multiprocessing.get_context("spawn")
    stop, lines = context.Event(), context.Queue()
    waiting = iter(missing)
    under_way: set[Future[str | None]] = set()
    with ProcessPoolExecutor(
        min(processes, len(missing) or 1), context, initializer=_begin, initargs=(stop, lines)
    ) as pool:
        try:
            while True:
                while len(under_way) < 2 * processes and (each := next(waiting, None)) is not None:
                    under_way.add(pool.submit(_in_process, work, each))
                if not under_way:
                    return
                done, under_way = wait(under_way, LOOK_S, FIRST_COMPLETED)
                _say_all(lines)
                for future in done:
                    if (failure := future.result()) is not None:
                        raise UserError(failure)
                yield
        except BrokenProcessPool as error:
            raise UserError("a process that fetched blocks has ended: the same command continues") from error
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            _say_all(lines)


def _say_all(lines: Any) -> None:
    try:
        while True:
            say(lines.get_nowait())
    except queue.Empty:
        return


_STOP: Any = None
_LINES: Any = None
"""Of a process that fetches: what stops it, and where its lines go."""


def _begin(stop: Any, lines: Any) -> None:
    """Begin a process that fetches. It ends with the command, also with one that is killed; Ctrl-C is the command's business."""
    global _STOP, _LINES
    _STOP, _LINES = stop, lines
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines.cancel_join_thread()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _in_process(work: Work, wanted: Range) -> str | None:
    return _outcome(work, wanted, _STOP, _LINES.put)


def _outcome(work: Work, wanted: Range, stop: Any, tell: Callable[[str], None]) -> str | None:
    """Fetch a range, and return why that failed."""
    try:
        fetch_range(work, wanted, stop, tell)
    except Stopped:
        return None
    except FollowError as error:
        return f"blocks {wanted.first} to {wanted.last}: {error}"
    return None


# --- Spark ---


def _tasks(work: Work, missing: Sequence[Range], master: str) -> Generator[None]:
    """Fetch ranges as tasks of Spark; yield now and then. Raises `UserError` for the first range that fails.

    Options of the cluster, such as its secret, stand in ``spark-defaults.conf`` of ``SPARK_CONF_DIR``.
    """
    if not missing:
        return
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors have the same program
    builder = SparkSession.builder.appName("validator fetch").master(master)
    absolute = Work(_at_its_path(work.source), work.in_flight)
    try:
        session = (
            builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
        )
        try:
            context = session.sparkContext
            context.setLogLevel("OFF")  # what fails is said in one line
            ranges = context.parallelize([tuple(each) for each in missing], len(missing))
            with ThreadPoolExecutor(1) as thread:
                found = thread.submit(ranges.map(partial(_in_task, absolute)).collect)
                try:
                    while not found.done():
                        yield
                        wait([found], LOOK_S)
                except BaseException:
                    context.cancelAllJobs()
                    raise
            failures = [each for each in found.result() if each is not None]
        finally:
            session.stop()
    except Exception as error:  # pyspark and py4j have no common root of their errors
        raise UserError(f"--spark {master}: {_cause(str(error))}") from error
    if failures:
        raise UserError(failures[0])


def _cause(text: str) -> str:
    """Return the line of an error of Spark that names the cause: of Python on an executor the last one, else the first."""
    lines = text.strip().splitlines() or ["it says nothing"]
    named = [line for line in lines if re.match(r"[A-Za-z_.]+(Error|Exception): ", line)]
    return (named or lines)[-1 if named else 0].strip()


def _at_its_path(source: ChainSource) -> ChainSource:
    """Return a source whose folder does not depend on the working directory."""
    return replace(source, folder=str(Path(source.folder).absolute()))


def _in_task(work: Work, wanted: tuple[int, int]) -> str | None:
    return _outcome(work, Range(*wanted), threading.Event(), say)
