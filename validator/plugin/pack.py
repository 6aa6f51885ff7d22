# SPDX-License-Identifier: Apache-2.0
"""Makes artefacts: archives of plugins that Spark's Python workers can import.

Spark does not put a shipped wheel on the workers' path, but it does so with a ``.zip``. If the archive holds the ``.dist-info`` folder, its
entry points are found. An artefact is named ``<distribution>-<version>-<sha8>.zip``; ``sha8`` is the first digits of `files.files_digest`,
because Spark identifies a file by its name. The same files give the same bytes: ascending paths, no times, no compression, and a record of
exactly these files.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import tempfile
import zipfile
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from email.parser import HeaderParser
from functools import lru_cache
from hashlib import sha256
from importlib import invalidate_caches
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from validator import DISTRIBUTION
from validator.errors import UserError
from validator.plugin.files import belongs, distribution_files, files_digest, find_distribution, is_editable
from validator.plugin.limited import BUILD_SECONDS_MAX, run_limited

COMPILED: Final = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".dll", ".dylib")
"""File name endings of modules that cannot be imported from an archive."""

DIGEST_CHARACTERS: Final = 8
"""Number of hex digits of the files' digest in an artefact's name."""

ARTEFACT: Final = re.compile(rf".+-[^-]+-([0-9a-f]{{{DIGEST_CHARACTERS}}})\.zip")

PRESENT: Final = DISTRIBUTION
PRESENT_EXTRA: Final = "spark"
"""The distribution and extra that every worker has, along with their dependencies."""

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class Packed(NamedTuple):
    """A written artefact. ``needs`` are the distributions that it requires and that workers do not have already, ascending."""

    path: Path
    needs: tuple[str, ...]


def pack(source: str, output: Path) -> Packed:
    """Write the artefact of an installed distribution, a wheel or a source folder, and return it.

    Raises `UserError`, in this order: no such distribution, an editable installation, a wheel that cannot be built or read (`unzipped`), a
    name or version that packages cannot have, validator itself, files that cannot be used from an archive, modules that would hide those of
    a worker, a dependency that is not installed or is compiled, an ``output`` that cannot be written.
    """
    contents = _contents(source)
    folder, name, version = _who(source, contents)
    _check_use(name, version, contents)
    needs = _needs(name, version, contents[f"{folder}/METADATA"])
    digest = files_digest(contents)
    path = output / _file_name(name, version, digest)
    try:
        output.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_archive(_recorded(folder, contents)))
    except OSError as error:
        raise UserError(f"{path}: the artefact cannot be written: {error.strerror}") from error
    return Packed(path, needs)


def unpack(source: str, folder: Path) -> str:
    """Write into a folder the files that installing ``source`` would put on the path, and return the distribution's name.

    ``source`` is as for `pack`, but compiled files are allowed. Raises `UserError`, in this order: no such distribution, an editable
    installation, a wheel that cannot be built or read.
    """
    contents = _contents(source)
    info, name, _ = _who(source, contents)
    for path, content in _recorded(info, contents).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return name


def build_wheel(folder: Path, output: Path) -> Path:
    """Build the wheel of a source folder, and return its path in ``output``, which holds no other. Raises `UserError`."""
    pip = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--quiet", "--no-index"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(output), str(folder.absolute())]
    done = run_limited(command)
    if done.late:
        raise UserError(f"{folder}: its wheel cannot be built: it took more than {BUILD_SECONDS_MAX} s")
    built = sorted(output.glob("*.whl"))
    if done.code != 0 or len(built) != 1:
        lines = [line.strip() for line in done.errors.splitlines() if line.strip()] or ["pip gave no reason"]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|BackendUnavailable)\b", line)]
        why = (errors or lines)[-1]
        raise UserError(f"{folder}: its wheel cannot be built: {why}")
    return built[0]


def check_artefact(path: Path) -> None:
    """Check an archive that anyone may have made, also of an earlier version of this program.

    Raises `UserError`, in this order: a file that is not named like an artefact, is missing or cannot be read (`unzipped`), other files
    than the digest in its name says, another distribution than its name says, and what `pack` refuses in the archive itself.
    """
    matched = ARTEFACT.fullmatch(path.name)
    if matched is None:
        raise UserError(
            f"{path}: expected an artefact named <distribution>-<version>-<sha8>.zip: `validator plugins pack` makes them"
        )
    contents = unzipped(path, covered=True)
    digest = files_digest(contents)[:DIGEST_CHARACTERS]
    if digest != matched[1]:
        raise UserError(
            f"{path}: expected files with the digest {matched[1]} given in its name, found {digest}: pack it again"
        )
    _, name, version = _who(str(path), contents)
    if path.name != (expected := _file_name(name, version, digest)):
        raise UserError(f"{path}: it holds {name} {version}: expected it to be named {expected}")
    _check_use(name, version, contents)


def check_artefacts_in_use() -> None:
    """Check, in a process that Spark started with artefacts on its path, each of them. Raises `UserError` as `check_artefact` does."""
    for entry in map(Path, sys.path):
        if ARTEFACT.fullmatch(entry.name) and entry.is_file():
            check_artefact(entry)


def use_artefacts(paths: Iterable[str]) -> list[Path]:
    """Check artefacts, put them on this process's path before installed packages, as Spark's workers do, and return them.

    Raises `UserError` as `check_artefact` does, then for one that would hide another artefact in use, of the same distribution.
    """
    artefacts = [Path(path).absolute() for path in paths]
    for path in artefacts:
        check_artefact(path)
        _refuse_to_hide(path)
    for path in reversed(artefacts):
        if str(path) not in sys.path:
            sys.path.insert(1, str(path))
            invalidate_caches()
    return artefacts


def _refuse_to_hide(path: Path) -> None:
    """Raise `UserError` if another artefact of the same distribution is on the path, as after reading two configurations."""
    for entry in map(Path, sys.path):
        same = ARTEFACT.fullmatch(entry.name) and entry.name.rsplit("-", 2)[0] == path.name.rsplit("-", 2)[0]
        if same and entry.name != path.name:
            raise UserError(
                f"{path}: {entry.name} is in use, another version of the same distribution, and a process imports only one: give the new "
                "version a separate distribution and module (docs/deploy-a-handler.md, Upgrading a handler)"
            )


def _contents(source: str) -> dict[str, bytes]:
    path = Path(source)
    if path.is_dir() and ((path / "pyproject.toml").exists() or (path / "setup.py").exists()):
        with tempfile.TemporaryDirectory() as wheels:
            return unzipped(build_wheel(path, Path(wheels)))
    if path.suffix == ".whl":
        return unzipped(path)
    if len(path.parts) > 1:
        raise UserError(
            f"{source}: expected a source folder with a pyproject.toml, a wheel or the name of an installed distribution"
        )
    distribution = find_distribution(source)
    if is_editable(distribution):
        raise UserError(f"distribution {source}: it is installed editable: give its source folder instead")
    return distribution_files(distribution)


def _who(source: str, contents: Mapping[str, bytes]) -> tuple[str, str, str]:
    folders = sorted({name.partition("/")[0] for name in contents if name.endswith(".dist-info/METADATA")})
    if len(folders) != 1:
        raise UserError(f"{source}: expected one .dist-info folder with METADATA, found {len(folders)}")
    fields = HeaderParser().parsestr(contents[f"{folders[0]}/METADATA"].decode("utf-8", "replace"))
    name, version = fields["Name"], fields["Version"]
    if not name or not version:
        raise UserError(f"{source}: expected METADATA with Name and Version")
    check_words(source, name, version)
    return folders[0], name, version


def _refuse_compiled(who: str, contents: Mapping[str, bytes]) -> None:
    for name in contents:
        if name.endswith(COMPILED):
            raise UserError(
                f"distribution {who}: {name} is compiled and cannot be imported from an archive: install the distribution where workers run"
            )
        path = PurePosixPath(name)
        if path.suffix == ".pth" and len(path.parts) == 1:
            raise UserError(
                f"distribution {who}: {name} has no effect in an archive: install the distribution where workers run"
            )


def _needs(name: str, version: str, metadata: bytes) -> tuple[str, ...]:
    """Return the distributions that have to be packed as well, without those that every worker has. Raises `UserError`."""
    who = f"distribution {name} {version}"
    present: dict[str, str] = {}
    _close([Requirement(f"{PRESENT}[{PRESENT_EXTRA}]")], present)
    needed: dict[str, str] = {}
    listed = HeaderParser().parsestr(metadata.decode("utf-8", "replace")).get_all("Requires-Dist") or []
    _close(_applying(listed, frozenset()), needed, without=(*present, canonicalize_name(name)), who=who)
    for other in needed.values():
        _refuse_compiled_dependency(who, other)
    return tuple(sorted(needed.values()))


def _check_use(name: str, version: str, contents: Mapping[str, bytes]) -> None:
    """Raise `UserError` for validator itself, files that cannot be used from an archive, and modules that would hide others."""
    who = f"{name} {version}"
    if canonicalize_name(name) == PRESENT:
        raise UserError(f"distribution {who}: it is the program that plugins extend: install it where workers run")
    _refuse_compiled(who, contents)
    check_modules(who, contents, _owners(canonicalize_name(name)))


def _file_name(name: str, version: str, digest: str) -> str:
    return f"{canonicalize_name(name).replace('-', '_')}-{version}-{digest[:DIGEST_CHARACTERS]}.zip"


def _owners(own: str) -> dict[str, str]:
    """Return, by top-level module, an installed distribution that it belongs to, without the modules of one's ``own``."""
    return {
        module: names[0]
        for module, names in _modules(tuple(sys.path)).items()
        if all(canonicalize_name(name) != own for name in names)
    }


@lru_cache(maxsize=4)
def _modules(path: tuple[str, ...]) -> Mapping[str, list[str]]:  # noqa: ARG001 - what is installed depends on the path
    """Return, by top-level module, the installed distributions that it belongs to; it takes a tenth of a second."""
    return packages_distributions()


def _close(
    wanted: Iterable[Requirement], into: dict[str, str], without: Collection[str] = (), who: str | None = None
) -> None:
    """Add distributions and their dependencies, recursively; one that is not installed is refused if ``who`` is given, else skipped."""
    for requirement in wanted:
        key = canonicalize_name(requirement.name)
        if key in into or key in without:
            continue
        try:
            distribution = find_distribution(key)
        except UserError:
            if who is not None:
                missing = f"{who}: it needs {requirement.name}, which is not installed here"
                raise UserError(f"{missing}: pack it on a machine that has it") from None
            continue
        into[key] = distribution.metadata["Name"]
        _close(_applying(distribution.requires or [], requirement.extras), into, without, who)


def _applying(listed: Iterable[str], extras: Collection[str]) -> Iterator[Requirement]:
    """Yield the requirements whose marker holds on this machine with one of the extras, or without any."""
    for text in listed:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in ("", *extras)):
            yield requirement


def _refuse_compiled_dependency(who: str, name: str) -> None:
    distribution = find_distribution(name)
    for path in distribution.files or ():
        if str(path).endswith(COMPILED):
            raise UserError(
                f"{who}: it needs {name}, whose {path} is compiled and cannot be imported from an archive: install both where "
                "workers run"
            )


def _recorded(folder: str, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files together with their RECORD."""
    record = io.StringIO()
    writer = csv.writer(record, lineterminator="\n")
    for name, content in sorted(contents.items()):
        digest = urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
        writer.writerow([name, f"sha256={digest}", len(content)])
    writer.writerow([f"{folder}/RECORD", "", ""])
    return {**contents, f"{folder}/RECORD": record.getvalue().encode()}


def _archive(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system, info.external_attr = 3, 0o100644 << 16
            archive.writestr(info, files[name])
    return out.getvalue()


FILES_MAX: Final = 10_000
"""Files of a distribution."""
FILES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of all files of a distribution, uncompressed."""
WORD_CHARACTERS_MAX: Final = 100
"""Characters of a distribution's name, and of its version."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_]*")
_PROGRAM: Final = frozenset({"validator", "streaming", "plugins"})


def unzipped(path: Path, *, covered: bool = False) -> dict[str, bytes]:
    """Return the files of an archive by path, ascending.

    Raises `UserError`, in this order: too many files, one whose path is not inside or occurs twice, too many bytes, modules that an
    installation moves, with ``covered`` a file that the digest leaves out and Python imports all the same, an archive that cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [each for each in archive.infolist() if not each.is_dir()]
            names = [each.filename for each in entries]
            _check_paths(path, names)
            # no more bytes of a file are read than its entry announces
            if (size := sum(each.file_size for each in entries)) > FILES_BYTES_MAX:
                raise UserError(f"{path}: expected at most {FILES_BYTES_MAX} bytes of files, found {size}")
            if elsewhere := sorted(name for name in names if re.match(r"[^/]+\.data/(purelib|platlib)/", name)):
                raise UserError(
                    f"{path}: {elsewhere[0]} is moved when it is installed: expected modules at the top level"
                )
            if covered and (left_out := sorted(each for each in names if not belongs(each) and not _is_record(each))):
                raise UserError(
                    f"{path}: expected files that the digest in its name covers, found {left_out[0][:100]!r}"
                )
            return {name: archive.read(name) for name in sorted(names) if belongs(name)}
    except OSError as error:
        raise UserError(f"{path}: the archive cannot be read: {error.strerror}") from error
    # also: unknown compression, encrypted, damaged
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: expected a zip archive: {error}") from error


def check_words(source: str, name: str, version: str) -> None:
    """Raise `UserError` unless a distribution's name and version have the form that packages have; they become part of a file's name."""
    for field, word, form in (("Name", name, _NAME), ("Version", version, _VERSION)):
        if len(word) > WORD_CHARACTERS_MAX or form.fullmatch(word) is None:
            expected = f"up to {WORD_CHARACTERS_MAX} characters that match {form.pattern}"
            raise UserError(f"{source}: METADATA {field}: expected {expected}, found {word[:60]!r}")


def check_modules(who: str, names: Iterable[str], owners: Mapping[str, str]) -> None:
    """Raise `UserError` if a file would hide another module: an artefact comes first on the path.

    ``owners`` has, by module, the installed distribution that it belongs to.
    """
    for name in sorted(names):
        first = name.partition("/")[0]
        if first.endswith(".dist-info"):
            continue
        module = first.partition(".")[0]
        if module in sys.stdlib_module_names or module in _PROGRAM:
            raise UserError(f"distribution {who}: {name} would hide module {module}, which every worker has")
        if module in owners:
            raise UserError(f"distribution {who}: {name} would hide module {module} of {owners[module]}")


def _is_record(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    return file == "RECORD" and folder.endswith(".dist-info") and "/" not in folder


def _check_paths(path: Path, names: list[str]) -> None:
    if len(names) > FILES_MAX:
        raise UserError(f"{path}: expected at most {FILES_MAX} files, found {len(names)}")
    seen = set()
    for name in names:
        if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise UserError(f"{path}: expected paths inside the archive, found {name[:100]!r}")
        if name in seen:
            raise UserError(f"{path}: expected each path once, found {name[:100]!r} twice")
        seen.add(name)
