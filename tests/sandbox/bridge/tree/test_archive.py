"""Archives out and in: a backup is whole or visibly none, and a stranger's archive harms nobody.

Every archive that has become known for writing outside of its destination is here, by its kind. Each must leave the
victim beside the home alone, and either the old tree or exactly what is expected.
"""

import gzip
import io
import os
import random
import subprocess
import tarfile
import tempfile
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sandbox.bridge.tree.archive import RestoreUpload, backup_stream, extract_tar
from sandbox.bridge.tree.tar import END, Form, TarMember, encode, padded
from sandbox.protocol.tree import TreeLimits
from sandbox.system.problem import TreeProblem
from tests.sandbox.bridge.tree.test_tar import header
from tests.sandbox.tree.test_staging import beside, large, restore, sample
from tests.sandbox.trees import Drawing, Told, in_a_child, make_home, open_descriptors, somebody, tell

Row = tuple[bytes, bytes] | tuple[bytes, bytes, bytes]  # name, type, content or target


@pytest.fixture
def place() -> Iterator[Path]:
    """A home with an old tree, and a victim beside it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as path:
        home = make_home(Path(path) / "home")
        (home / "workspace" / "old").write_text("kept")
        (home / "agent" / "memory").write_text("kept")
        victim = Path(path) / "victim"
        victim.mkdir()
        (victim / "canary").write_text("alive")
        yield Path(path)


def untouched(place: Path) -> bool:
    names = sorted(str(path.relative_to(place)) for path in place.rglob("*") if "home" not in path.parts)
    return names == ["victim", "victim/canary"] and (place / "victim" / "canary").read_text() == "alive"


def tar(*rows: Row, size: int | None = None) -> bytes:
    """An archive, with names as they are given. `size` is what its headers claim."""
    archive = b""
    for name, flag, *rest in rows:
        value = rest[0] if rest else b""
        form = {b"0": Form.FILE, b"1": Form.HARD_LINK, b"2": Form.SYMLINK, b"5": Form.DIRECTORY}.get(flag)
        if form is None:
            archive += header(name, flag)
        elif form is Form.FILE:
            archive += encode(TarMember(name, form, 0o644, 0, len(value) if size is None else size)) + padded(value)
        else:
            archive += encode(TarMember(name, form, 0o755, 0, 0, value))
    return archive + END


def pieces(archive: bytes, step: int = 10_000) -> Iterable[bytes]:
    return (archive[start : start + step] for start in range(0, len(archive), step))


LONG = b"d" * 247
DEEP = b"/".join([LONG] * 16)

HOSTILE: dict[str, tuple[Row, ...]] = {
    # CVE-2007-4559: names that lead out
    "dots in front": ((b"../victim/canary", b"0", b"dead"),),
    "dots in the middle": ((b"workspace/a/../../../victim/canary", b"0", b"dead"),),
    "dots after a root": ((b"workspace/..", b"5"),),
    "dots as a directory": ((b"..", b"5"),),
    "dots as a symlink": ((b"workspace/..", b"2", b"/"),),
    "absolute": ((b"/victim/canary", b"0", b"dead"),),
    "absolute with many slashes": ((b"///victim/canary", b"0", b"dead"),),
    "absolute directory": ((b"/", b"5"),),
    # CVE-2025-4517, CVE-2024-12718 and their kind: through a symlink that the archive itself made
    "a file through a symlink": ((b"workspace/l", b"2", b"../../victim"), (b"workspace/l/canary", b"0", b"dead")),
    "a directory through a symlink": ((b"l", b"2", b"../../victim"), (b"l/more", b"5")),
    "a symlink through a symlink": ((b"l", b"2", b"../../victim"), (b"l/more", b"2", b"x")),
    "a hard link through a symlink": (
        (b"l", b"2", b"../../victim"),
        (b"f", b"0", b"x"),
        (b"l/canary", b"1", b"f"),
    ),
    "a file over a symlink": ((b"l", b"2", b"../../victim/canary"), (b"l", b"0", b"dead")),
    "a directory over a symlink": ((b"l", b"2", b"../../victim"), (b"l", b"5"), (b"l/canary", b"0", b"dead")),
    "a symlink over a directory": ((b"d", b"5"), (b"d", b"2", b"../../victim"), (b"d/canary", b"0", b"dead")),
    "a symlink over a file": ((b"f", b"0", b"x"), (b"f", b"2", b"../../victim/canary"), (b"f", b"0", b"dead")),
    # CVE-2025-4138: a chain of symlinks longer than PATH_MAX, which realpath gives up on
    "a chain beyond PATH_MAX": (
        *(
            row
            for level in range(16)
            for row in (
                (b"/".join([LONG] * level + [LONG]), b"5"),
                (b"/".join([LONG] * level + [b"%c" % (97 + level)]), b"2", LONG),
            )
        ),
        (b"/".join([b"%c" % (97 + level) for level in range(16)] + [b"l" * 254]), b"2", b"../" * 16),
        (b"/".join([b"%c" % (97 + level) for level in range(16)] + [b"l" * 254, b"victim"]), b"0", b"dead"),
    ),
    # cpython 157190: a hard link to a symlink, then a write through it
    "a hard link to a symlink": ((b"s", b"2", b"../../victim/canary"), (b"h", b"1", b"s"), (b"h", b"0", b"dead")),
    "a hard link to what is outside": ((b"h", b"1", b"../../victim/canary"),),
    "a hard link to an absolute path": ((b"h", b"1", b"/etc/passwd"),),
    "a hard link to a directory": ((b"d", b"5"), (b"h", b"1", b"d")),
    "a hard link to what comes later": ((b"h", b"1", b"f"), (b"f", b"0", b"x")),
    "a hard link to itself": ((b"h", b"1", b"h"),),
    "a hard link to nothing": ((b"h", b"1", b""),),
    # cpython 149486: symlinks without a name, or to nothing
    "a symlink without a name": ((b"", b"2", b"../../victim"),),
    "a symlink named by a dot": ((b".", b"2", b"../../victim"), (b"./canary", b"0", b"dead")),
    "a symlink named by a slash": ((b"workspace/", b"2", b"../../victim"), (b"workspace/canary", b"0", b"dead")),
    "a symlink to nothing": ((b"l", b"2", b""),),
    "a file without a name": ((b"", b"0", b"x"),),
    "a file named as a directory": ((b"f/", b"0", b"x"),),
    # the same name again
    "a file twice": ((b"f", b"0", b"1"), (b"f", b"0", b"2")),
    "a file twice, in other words": ((b"d/f", b"0", b"1"), (b"./d//./f", b"0", b"2")),
    "a file over a directory": ((b"d", b"5"), (b"d", b"0", b"x")),
    "a directory over a file": ((b"f", b"0", b"x"), (b"f", b"5")),
    "a file below a file": ((b"f", b"0", b"x"), (b"f/g", b"0", b"y")),
    # what is no file
    "a character device": ((b"c", b"3"),),
    "a block device": ((b"b", b"4"),),
    "a FIFO": ((b"p", b"6"),),
    "GNU sparse": ((b"s", b"S"),),
    # what cannot be kept
    "a name too long": ((b"n" * 256, b"0", b"x"),),
    "too many directories": ((b"/".join([b"d"] * 65), b"5"),),
    "too many directories for a workspace": ((b"/".join([b"d"] * 64), b"5"),),
    "a path too long": ((DEEP + b"/" + LONG, b"0", b"x"),),
    "a path too long for a workspace": ((DEEP + b"/" + b"n" * 120, b"0", b"x"),),
    "NUL in a name": ((b"a" * 150 + b"\0/../x", b"0", b"x"),),
    "NUL in a target": ((b"l", b"2", b"a" * 150 + b"\0x"),),
    "a target too long": ((b"l", b"2", b"t" * 5000),),
    "nothing": (),
}


@pytest.mark.parametrize("rows", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_archive_is_refused_and_the_old_tree_stays(place: Path, rows: tuple[Row, ...]) -> None:
    home = place / "home"
    before, descriptors = tell(home), open_descriptors()
    with pytest.raises(TreeProblem) as caught:
        extract_tar(home, pieces(tar(*rows)))
    assert caught.value.code in ("bad_archive", "too_deep")
    assert caught.value.error.isprintable()
    assert tell(home) == before
    assert beside(home) == []
    assert untouched(place)
    assert open_descriptors() == descriptors


def test_symlinks_to_anywhere_come_verbatim_and_are_followed_by_nobody(place: Path) -> None:
    targets = {b"workspace/out": b"../../victim", b"workspace/root": b"/", b"agent/up": b"..", b"agent/self": b"self"}
    targets[b"workspace/proc"] = b"/proc/self/root"
    rows: list[Row] = [(b"workspace", b"5"), (b"agent", b"5"), *((path, b"2", to) for path, to in targets.items())]
    extract_tar(place / "home", [tar(*rows)])
    assert {path: told[3] for path, told in tell(place / "home").items()} == targets
    assert untouched(place)


def test_no_set_user_bit_and_no_owner_comes_in(place: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("workspace/tool")
        info.mode, info.uid, info.gid, info.uname = 0o6777, 12345, 12345, "root"
        archive.addfile(info)
        info = tarfile.TarInfo("workspace/shared")
        info.type, info.mode = tarfile.DIRTYPE, 0o3777
        archive.addfile(info)
    extract_tar(place / "home", [buffer.getvalue()])
    for name in ("tool", "shared"):
        found = (place / "home" / "workspace" / name).stat()
        assert found.st_mode & 0o7777 == 0o777
        assert (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid())


def test_hard_links_to_files_of_the_archive_come_in(place: Path) -> None:
    rows: list[Row] = [(b"d/f", b"0", b"content"), (b"e/h", b"1", b"./d/f"), (b"i", b"1", b"e/h")]
    extract_tar(place / "home", [tar(*rows)])
    told = tell(place / "home")
    assert [told[path][3] for path in (b"workspace/d/f", b"workspace/e/h", b"workspace/i")] == [b"content"] * 3


LIMITS = TreeLimits(files=50, total_bytes=100_000)


@pytest.mark.parametrize(
    ("archive", "code"),
    [
        (tar(*[(b"f%d" % n, b"0") for n in range(51)]), "too_many"),
        (tar((b"a/" * 50 + b"f", b"0")), "too_many"),
        (tar(*[(b"d", b"5")] * 51), "too_many"),
        (tar((b"f", b"0", b"x" * 100_001)), "too_large"),
        (tar((b"f", b"0", b"x" * 60_000), (b"g", b"0", b"x" * 60_000)), "too_large"),
        (tar((b"f", b"0", b"x" * 30_000), *[(b"h%d" % n, b"1", b"f") for n in range(4)]), "too_large"),
        (tar((b"f", b"0"), size=1 << 40), "too_large"),
        (gzip.compress(tar((b"f", b"0", bytes(99_000)))) + gzip.compress(bytes(1 << 20)), "too_large"),
    ],
    ids=["files", "directories", "one again", "bytes", "bytes together", "hard links", "1 TB", "zeros after its end"],
)
def test_what_is_more_than_the_limits_is_refused(place: Path, archive: bytes, code: str) -> None:
    before = tell(place / "home")
    with pytest.raises(TreeProblem) as caught:
        extract_tar(place / "home", pieces(archive), LIMITS)
    assert caught.value.code == code
    assert tell(place / "home") == before
    assert beside(place / "home") == []


def test_no_archive_has_more_members_than_the_house_allows(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.bridge.tree.unpack.MAX_MEMBERS", 20)  # 200,000 of them take half a minute
    with pytest.raises(TreeProblem) as caught:
        extract_tar(place / "home", pieces(tar(*[(b"f%d" % n, b"0") for n in range(21)])))
    assert caught.value.code == "too_many"


def test_a_bomb_is_stopped_before_it_takes_room(place: Path) -> None:
    """Less than 100 kB that say they grow to 10 GB: only the first part is ever made."""
    bomb = gzip.compress(encode(TarMember(b"f", Form.FILE, 0o644, 0, 10 << 30)) + bytes(64 << 20), 9)
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(TreeProblem) as caught:
            extract_tar(place / "home", pieces(bomb))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.code == "too_large"
    assert beside(place / "home") == []
    assert sorted(tell(place / "home")) == [b"agent/memory", b"workspace/old"]


# -- archives that end too early --------------------------------------------------------------------------------------


def test_an_archive_that_was_cut_anywhere_is_never_taken(place: Path) -> None:
    home = place / "home"
    restore(home, everything())
    whole = b"".join(backup_stream(home))
    before = tell(home)
    rng = random.Random(1)
    # Its last block may be missing in part: the end has two of them, and neither says anything.
    cuts = {0, 1, 511, 512, 513, len(whole) - 1024, len(whole) - 513, len(whole) - 512, len(whole) - 1}
    for cut in cuts | {rng.randrange(len(whole) - 1) for _ in range(60)}:
        with pytest.raises(TreeProblem):
            extract_tar(home, pieces(whole[:cut], 1 << 20))
        assert tell(home) == before, cut
    extract_tar(home, pieces(whole))
    assert tell(home) == before


def test_a_compressed_archive_that_was_cut_or_damaged_is_never_taken(place: Path) -> None:
    home = place / "home"
    before = tell(home)
    whole = gzip.compress(tar((b"f", b"0", random.Random(0).randbytes(3000))))
    for cut in (*range(0, len(whole), 97), len(whole) - 8, len(whole) - 1):
        with pytest.raises(TreeProblem):
            extract_tar(home, [whole[:cut]])
        with pytest.raises(TreeProblem):
            extract_tar(home, [whole[:cut] + bytes([whole[cut] ^ 255]) + whole[cut + 1 :]] if cut > 10 else [])
    assert tell(home) == before
    extract_tar(home, pieces(whole + bytes(1000), 7))
    assert list(tell(home)) == [b"workspace/f"]


def test_an_upload_that_is_given_up_leaves_nothing(place: Path) -> None:
    before, descriptors = tell(place / "home"), open_descriptors()
    upload = RestoreUpload(place / "home")
    upload.feed(tar((b"f", b"0", b"x" * 5000))[:2000])
    assert beside(place / "home") != []
    upload.abort()
    upload.abort()
    assert tell(place / "home") == before
    assert beside(place / "home") == []
    assert open_descriptors() == descriptors


def test_an_upload_that_dies_at_any_step_leaves_the_old_tree_or_the_new(place: Path) -> None:
    home = place / "home"
    archive = tar((b"workspace/d/f", b"0", b"new"), (b"agent/l", b"2", b"new"))
    old = tell(home)
    for step in range(0, 200, 3):
        ended = in_a_child(lambda: extract_tar(home, [archive], aside=False), dies_at=step)
        upload = RestoreUpload(home)
        upload.feed(b"")
        upload.abort()
        found = tell(home)
        assert found == old or sorted(found) == [b"agent/l", b"workspace/d", b"workspace/d/f"]
        assert beside(home) == []
        if ended:
            break
    else:
        pytest.fail("it never came to its end")


# -- there and back ---------------------------------------------------------------------------------------------------


def test_a_backup_brings_everything_back(place: Path) -> None:
    home, drawing = place / "home", everything()
    restore(home, drawing)
    archive = b"".join(backup_stream(home))
    other = make_home(place / "home2")
    extract_tar(other, pieces(archive))
    assert tell(other) == drawing.told
    extract_tar(other, pieces(gzip.compress(archive), 1000), aside=False)
    assert tell(other) == drawing.told
    assert beside(other) == []


def test_what_was_there_is_kept_aside_unless_told_otherwise(place: Path) -> None:
    old = tell(place / "home")
    extract_tar(place / "home", [tar((b"f", b"0", b"new"))])
    assert tell(place / "home" / ".aside-1") == old


def test_no_mode_stops_an_upload_of_somebody_who_is_not_root(open_path: Path) -> None:
    home = make_home(open_path / "home", owner=somebody())
    rows = [TarMember(b"workspace", Form.DIRECTORY, 0, 0), TarMember(b"workspace/d", Form.DIRECTORY, 0o500, 0)]
    rows += [TarMember(b"workspace/d/f", Form.FILE, 0, 0)]
    rows += [TarMember(b"workspace/d/h", Form.HARD_LINK, 0, 0, 0, b"workspace/d/f")]
    rows += [
        TarMember(b"workspace/d/e", Form.DIRECTORY, 0, 0),
        TarMember(b"workspace/d/l", Form.SYMLINK, 0, 0, 0, b"f"),
    ]
    archive = b"".join(map(encode, rows)) + END
    assert in_a_child(lambda: extract_tar(home, [archive]), owner=somebody())
    told = tell(home)
    assert {path: entry[1] for path, entry in told.items()} == {
        b"workspace/d": 0o500,
        b"workspace/d/f": 0,
        b"workspace/d/h": 0,
        b"workspace/d/e": 0,
        b"workspace/d/l": 0o777,
    }


def tame() -> Drawing:
    """What every form of archive can say, and everybody can read."""
    drawing = Drawing()
    drawing.directory(b"workspace/src", 0o750, 5 * 10**9)
    drawing.directory(b"workspace/src/empty", 0o700, 6 * 10**9)
    drawing.directory(b"workspace/locked", 0o555)
    drawing.file(b"workspace/src/main.py", b"print(1)", mode=0o755)
    drawing.file(b"workspace/none", mode=0o600)
    drawing.file(b"workspace/locked/large", *large(3, 5), mode=0o444)
    drawing.file(b"workspace/ odd \xff\n\x1b[2J", b"odd")
    drawing.symlink(b"workspace/link", b"/etc/passwd")
    drawing.directory(b"agent/" + b"d" * 80)
    drawing.file(b"agent/" + b"d" * 80 + b"/" + b"f" * 90, b"x")
    return drawing


def everything() -> Drawing:
    return sample() if os.geteuid() == 0 else tame()  # a backup needs the right to read


@pytest.mark.parametrize("form", ["ustar", "gnu", "oldgnu", "posix"])
@pytest.mark.parametrize("base", ["roots", "home", "workspace", "names"])
def test_what_the_tar_program_made_comes_in(place: Path, form: str, base: str) -> None:
    source, drawing = make_home(place / "home-of-another"), tame()
    if form != "ustar":
        drawing.file(b"workspace/" + b"n" * 255, b"long")
        drawing.symlink(b"workspace/far", b"t" * 255)
    restore(source, drawing)
    directory = source if base in ("roots", "home") else source / "workspace"
    names = ["."] if base in ("home", "workspace") else sorted(os.listdir(directory))
    command = ["tar", "-c", f"--format={form}", "-C", str(directory), "--", *names]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    extract_tar(place / "home", pieces(made, 4097))
    told = {path: one for path, one in drawing.told.items() if directory == source or path.startswith(b"workspace/")}
    assert _in_seconds(tell(place / "home"), form) == _in_seconds(told, form)


def _in_seconds(told: Told, form: str) -> Told:
    """Only the newest form has more."""
    unit = 1 if form == "posix" else 10**9
    return {path: (kind, mode, mtime_ns // unit, content) for path, (kind, mode, mtime_ns, content) in told.items()}


def test_the_tar_program_takes_out_what_was_backed_up(place: Path) -> None:
    home, drawing = place / "home", everything()
    restore(home, drawing)
    os.mkfifo(home / "workspace" / "fifo")
    out = place / "home-of-another"
    out.mkdir()
    archive = b"".join(backup_stream(home))
    subprocess.run(["tar", "-xp", "-C", out], input=archive, check=True)
    told = tell(out)
    assert told == drawing.told
    listed = subprocess.run(["tar", "-t"], input=archive, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    assert len(listed) == len(told) + 2


def test_what_the_tar_program_had_not_finished_is_never_taken(place: Path) -> None:
    """RELIABILITY F7: it is killed at half of its way, again and again."""
    home = place / "home"
    (home / "workspace" / "large").write_bytes(random.Random(0).randbytes(6 << 20))
    before = tell(home)
    for round_number in range(12):
        program = subprocess.Popen(["tar", "-c", "-C", home, "workspace", "agent"], stdout=subprocess.PIPE)
        assert program.stdout is not None
        upload = RestoreUpload(home)
        for _ in range(round_number):
            upload.feed(program.stdout.read(500_000))
        program.kill()
        upload.feed(program.stdout.read())
        program.stdout.close()
        assert program.wait() != 0
        with pytest.raises(TreeProblem, match="ends in the middle"):
            upload.finish()
        assert tell(home) == before


# -- a backup of a tree that lives ------------------------------------------------------------------------------------


def test_a_file_that_becomes_shorter_is_a_loud_failure(place: Path) -> None:
    large = place / "home" / "workspace" / "zzz"
    large.write_bytes(bytes(3 << 20))
    stream = backup_stream(place / "home")
    taken = [next(stream)]
    large.write_bytes(b"short")
    with pytest.raises(TreeProblem, match="shorter"):
        taken.extend(stream)
    with pytest.raises(TreeProblem):
        extract_tar(place / "home", taken)


def test_a_file_that_grows_is_kept_as_long_as_it_was(place: Path) -> None:
    large = place / "home" / "workspace" / "zzz"
    large.write_bytes(bytes(1 << 20))
    stream = backup_stream(place / "home")
    taken = [next(stream)]
    with large.open("ab") as file:
        file.write(b"more")
    extract_tar(place / "home", [*taken, *stream])
    assert large.stat().st_size == 1 << 20
