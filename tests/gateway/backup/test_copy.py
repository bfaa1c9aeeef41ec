"""Copying trees that programs change meanwhile: one entry that cannot be copied costs nobody the rest."""

import contextlib
import errno
import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.backup.copy import Copier, measure


class TwiceNamed(Copier):
    """Finds each entry once more: a file system may name again what is renamed over while a directory is read."""

    def _copy(self, name: str, here: int, there: int, path: Path, depth: int) -> None:
        super()._copy(name, here, there, path, depth)
        super()._copy(name, here, there, path, depth)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "directory").mkdir(parents=True)
    (source / "directory" / "inner").write_text("inner")
    (source / "file").write_text("content")
    (source / "link").symlink_to("file")
    return source


def test_what_is_named_twice_is_copied_once(source: Path, tmp_path: Path) -> None:
    copier = TwiceNamed(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert copier.left_out == 0
    assert (tmp_path / "copy" / "directory" / "inner").read_text() == "inner"
    assert (tmp_path / "copy" / "file").read_text() == "content"
    assert os.readlink(tmp_path / "copy" / "link") == "file"


def test_nothing_is_overwritten_where_the_source_stands_still(source: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "file").write_text("theirs")
    with pytest.raises(FileExistsError):
        Copier().tree(source, tmp_path / "copy")
    assert (tmp_path / "copy" / "file").read_text() == "theirs"


def test_a_file_that_is_too_large_for_the_target_is_left_out(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncate = os.ftruncate

    def bounded(descriptor: int, size: int) -> None:
        if size > 100:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        truncate(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", bounded)
    (source / "large").write_bytes(b"x" * 200)
    copier = Copier()
    copier.tree(source, tmp_path / "copy")
    assert sorted(each.name for each in (tmp_path / "copy").iterdir()) == ["directory", "file", "link"]
    assert (copier.left_out, copier.left_out_names) == (1, [f"{source}/large: File too large"])


def test_names_of_what_is_left_out_say_nothing_to_a_terminal(source: Path, tmp_path: Path) -> None:
    os.mkfifo(os.fsencode(source) + b"/\x1b]0;mine\x07\xff")
    copier = Copier()
    copier.tree(source, tmp_path / "copy")
    assert copier.left_out_names[0].isprintable()


def test_no_path_is_too_long(source: Path, tmp_path: Path) -> None:
    def write_far_down() -> None:
        here = os.open(source, os.O_RDONLY)
        for _ in range(30):  # of 200 characters each: more than the 4,096 that a path may have
            os.mkdir("d" * 200, dir_fd=here)
            here, above = os.open("d" * 200, os.O_RDONLY, dir_fd=here), here
            os.close(above)
        os.write(file := os.open("f" * 250, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here), b"far down")
        for each in (file, here):
            os.close(each)

    write_far_down()
    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert copier.left_out_names == []
    assert measure(tmp_path / "copy") == (3, len("content" + "inner" + "far down"), 1)


def test_rights_that_only_programs_can_do_harm_with_are_not_copied(source: Path, tmp_path: Path) -> None:
    (source / "file").chmod(0o7755)
    (source / "directory").chmod(0o7777)
    Copier().tree(source, tmp_path / "copy")
    assert (tmp_path / "copy" / "file").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "copy" / "directory").stat().st_mode & 0o7777 == 0o777


def test_a_symlink_to_a_directory_of_this_machine_is_not_counted(source: Path, tmp_path: Path) -> None:
    (source / "tree").symlink_to(tmp_path / "elsewhere")
    before = measure(source)[:2]
    (tmp_path / "elsewhere").mkdir()
    assert measure(source)[:2] == before == (2, len("content" + "inner"))


def test_a_loop_that_swaps_links_and_files_ends_no_copy(source: Path, tmp_path: Path) -> None:
    swapped, done = [source / f"s{number}" for number in range(200)], threading.Event()

    def swap() -> None:
        while not done.is_set():
            for name in swapped:
                with contextlib.suppress(FileNotFoundError):
                    name.unlink()
                os.link(source / "file", name)
            for name in swapped:
                (source / "new").symlink_to("file")
                (source / "new").rename(name)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(20):
            Copier(changes=True).tree(source, tmp_path / f"copy{number}")
            assert (tmp_path / f"copy{number}" / "file").read_text() == "content"
    finally:
        done.set()
        thread.join()


def test_an_entry_that_has_become_another_kind_is_copied_as_it_is_now(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readlink = os.readlink

    def late(path: str, *, dir_fd: int) -> str:
        (source / "new").write_text("a file now")
        (source / "new").rename(source / "link")
        return readlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "readlink", late)
    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert copier.left_out_names == []
    assert (tmp_path / "copy" / "link").read_text() == "a file now"


def test_a_tree_that_is_removed_meanwhile_is_passed_over(source: Path, tmp_path: Path) -> None:
    def wanted(name: str) -> bool:
        for each in ("directory/inner", "file", "link"):
            (source / each).unlink(missing_ok=True)
        for gone in (source / "directory", source):
            with contextlib.suppress(FileNotFoundError):
                gone.rmdir()
        return True

    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy", wanted)
    assert (copier.left_out, copier.files) == (0, 0)


def of_a_lease(source: Path) -> Callable[[], None]:
    """A program may have a file opened by others wait, or fail where they do not wait."""
    file = os.open(source / "odd", os.O_CREAT | os.O_RDWR, 0o600)
    asked = signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent to the holder when somebody opens it
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def end() -> None:
        os.close(file)
        signal.signal(signal.SIGIO, asked)

    return end


def of_a_socket(source: Path) -> Callable[[], None]:
    listening = socket.socket(socket.AF_UNIX)
    here = os.open(source, os.O_RDONLY)
    listening.bind(f"/proc/self/fd/{here}/odd")  # the path of a socket may have 107 characters
    os.close(here)
    return listening.close


def of_a_fifo(source: Path) -> Callable[[], None]:
    os.mkfifo(source / "odd")
    return lambda: None


@pytest.mark.parametrize("odd", [of_a_lease, of_a_socket, of_a_fifo])
def test_one_entry_that_cannot_be_copied_is_named_and_the_rest_is_copied(
    odd: Callable[[Path], Callable[[], None]], source: Path, tmp_path: Path
) -> None:
    end = odd(source)
    try:
        copier = Copier(changes=True)
        copier.tree(source, tmp_path / "copy")
    finally:
        end()
    assert copier.left_out == 1
    assert copier.left_out_names[0].startswith(f"{source}/odd: ")
    assert sorted(each.name for each in (tmp_path / "copy").iterdir()) == ["directory", "file", "link"]


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EBUSY, errno.EINVAL, errno.ETXTBSY, errno.EOVERFLOW])
def test_an_unheard_of_error_of_one_entry_leaves_out_that_one(
    code: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sendfile = os.sendfile

    def broken(target: int, origin: int, at: int, count: int) -> int:
        if count == len("content"):
            raise OSError(code, os.strerror(code))
        return sendfile(target, origin, at, count)

    monkeypatch.setattr(os, "sendfile", broken)
    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert copier.left_out_names == [f"{source}/file: {os.strerror(code)}"]
    assert sorted(each.name for each in (tmp_path / "copy").iterdir()) == ["directory", "link"]


def name_often(source: Path, names: int) -> None:
    """One file of 1 MiB with so many names, in several directories."""
    (source / "0").write_bytes(b"x" * (1 << 20))
    for number in range(1, names):
        os.link(source / "0", source / ("directory" if number % 2 else ".") / str(number))


def test_a_file_with_many_names_is_copied_once(source: Path, tmp_path: Path) -> None:
    name_often(source, 50)
    (source / "directory").chmod(0o500)
    source.chmod(0o500)
    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert (copier.bytes, copier.files) == ((1 << 20) + len("content" + "inner"), 52)
    assert measure(tmp_path / "copy") == measure(source)
    assert (tmp_path / "copy" / "0").stat().st_nlink == 50
    assert (tmp_path / "copy" / "0").samefile(tmp_path / "copy" / "directory" / "1")
    assert sorted(os.listdir(tmp_path / "copy")) == sorted(os.listdir(source))
    assert (tmp_path / "copy").stat().st_mtime_ns == source.stat().st_mtime_ns


def test_a_file_with_many_names_that_changes_all_the_time_is_copied_a_few_times(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_often(source, 50)
    opened, now = os.open, 0

    def touch(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        nonlocal now
        now += 1
        os.utime(source / "0", ns=(now * 10**9, now * 10**9))
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", touch)
    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert (copier.left_out, measure(tmp_path / "copy")) == (0, measure(source))
    assert copier.bytes <= 4 << 20


def test_names_of_a_file_that_grows_all_the_time_are_left_out_in_the_end(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_often(source, 50)
    opened = os.open

    def grow(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        os.truncate(source / "0", (source / "0").stat().st_size + 1)
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", grow)
    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert copier.bytes <= 4 << 20
    assert copier.left_out_names[0].endswith(": it has too many names, or changes all the time")
    assert copier.left_out + copier.files == 52


def test_a_file_with_more_names_than_the_target_takes_is_copied_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_often(source, 7)
    link = os.link

    def bounded(name: str, other: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool) -> None:
        if os.stat(name, dir_fd=src_dir_fd).st_nlink == 4:  # with the one that goes in the end
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        link(name, other, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "link", bounded)
    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert (copier.left_out, measure(tmp_path / "copy")) == (0, measure(source))
    assert 3 << 20 <= copier.bytes < 4 << 20


def test_names_of_another_file_with_a_number_that_was_free_again_have_its_content(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems give the number of a removed file to the next one."""
    numbers, fstat = {(source / name).stat().st_ino for name in ("file", "directory/inner")}, os.fstat

    def reused(descriptor: int) -> os.stat_result:
        found = list(fstat(descriptor))
        if found[1] in numbers:
            found[1], found[3] = 7, 2
        return os.stat_result(found, {"st_mtime_ns": fstat(descriptor).st_mtime_ns, "st_atime_ns": 0})

    monkeypatch.setattr(os, "fstat", reused)
    Copier(changes=True).tree(source, tmp_path / "copy")
    assert (tmp_path / "copy" / "directory" / "inner").read_text() == "inner"
    assert (tmp_path / "copy" / "file").read_text() == "content"


def test_where_a_target_knows_no_links_every_name_gets_a_copy(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_often(source, 3)

    def unknown(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unknown)
    copier = Copier(changes=True)
    copier.tree(source, tmp_path / "copy")
    assert (copier.left_out, measure(tmp_path / "copy")) == (0, measure(source))
    assert (tmp_path / "copy" / "0").stat().st_nlink == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EMFILE])
def test_a_target_that_takes_no_more_ends_the_copy(
    code: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(target: int, origin: int, at: int, count: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "sendfile", full)
    with pytest.raises(OSError, match=os.strerror(code)):
        Copier(changes=True).tree(source, tmp_path / "copy")
