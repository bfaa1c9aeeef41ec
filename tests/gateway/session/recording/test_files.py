"""Recordings are private and bounded, and a disk that fails ends a recording and nothing else."""

import json
import math
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.session.recording.files import RecordingFile, RecordingFiles, prepare_directory


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(files: RecordingFiles, *entries: tuple[RecordingFile, dict[str, Any]]) -> None:
    """Have them written, and wait until they are."""
    for file, entry in entries:
        file.write(entry)
    files.close()
    files.open("nobody", 0)  # goes on writing


def test_each_recording_is_a_file_of_its_own_that_nobody_else_reads(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path)
    first, second, same = (files.open("s", fence) for fence in (1, 2, 1))
    for number, file in enumerate((first, second, same)):
        file.write({"n": number})
        file.end()
        file.end()
        file.write({"n": "too late"})
    files.close()
    files.close()
    assert [path.name for path in (first.path, second.path, same.path)] == ["s.1.jsonl", "s.2.jsonl", "s.1.1.jsonl"]
    assert [lines(file.path) for file in (first, second, same)] == [[{"n": 0}], [{"n": 1}], [{"n": 2}]]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_recording_that_is_full_ends_with_a_line_that_says_so(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path, recording_bytes=100)
    file = files.open("s", 1)
    for _ in range(10):
        file.write({"text": "x" * 30})
    files.close()
    assert file.over
    assert lines(file.path)[:-1] == [{"text": "x" * 30}] * 2
    assert lines(file.path)[-1] == {"stopped": "the recording has its 100 bytes"}


def test_a_disk_that_does_not_follow_ends_a_recording(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path, waiting_bytes=10)
    file = files.open("s", 1)
    file.write({"text": "x" * 30})
    files.close()
    assert lines(file.path) == [{"stopped": "the disk is too slow for it"}]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fails_ends_one_recording_and_no_other(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path)
    broken, other = files.open("s", 1), files.open("s", 2)
    with largest_file(1 << 20):
        written(files, (broken, {"text": "x" * (2 << 20)}), (other, {"n": 2}))
    assert broken.over
    assert not other.over
    written(files, (broken, {"n": 3}), (other, {"n": 4}))
    files.close()
    assert broken.path.stat().st_size == 1 << 20, "as far as it got"
    assert lines(other.path) == [{"n": 2}, {"n": 4}]


def test_a_recording_that_is_removed_ends_and_what_stands_in_its_place_is_left_alone(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path)
    removed, replaced = files.open("s", 1), files.open("s", 2)
    written(files, (removed, {"n": 1}), (replaced, {"n": 1}))
    for file in (removed, replaced):
        file.path.unlink()
    (tmp_path / "other").touch()
    replaced.path.symlink_to(tmp_path / "other")
    written(files, (removed, {"n": 2}), (replaced, {"n": 2}))
    files.close()
    assert (removed.over, replaced.over) == (True, True)
    assert not removed.path.exists()
    assert (tmp_path / "other").read_bytes() == b""


def test_a_recording_that_cannot_be_made_is_over(tmp_path: Path) -> None:
    gone = RecordingFiles(tmp_path / "gone")
    file = gone.open("s", 1)
    written(gone, (file, {"n": 1}))
    gone.close()
    assert file.over
    (tmp_path / "s.1.jsonl").symlink_to("/etc/passwd")
    files = RecordingFiles(tmp_path)
    file = files.open("s", 1)
    written(files, (file, {"n": 1}))
    files.close()
    assert file.path.name == "s.1.1.jsonl", "what stands there is left alone"


def test_of_a_recording_without_a_line_there_is_no_file(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path)
    files.open("s", 1).end()
    files.close()
    assert list(tmp_path.iterdir()) == []


def test_recordings_that_go_on_hold_no_descriptors(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path)
    before = len(os.listdir("/dev/fd"))
    running = [files.open("s", fence) for fence in range(200)]
    written(files, *((file, {"n": 1}) for file in running))
    assert len(os.listdir("/dev/fd")) == before
    written(files, *((file, {"n": 2}) for file in running))
    files.close()
    assert not any(file.over for file in running)
    assert [lines(file.path) for file in running] == [[{"n": 1}, {"n": 2}]] * 200


def test_a_directory_that_is_full_stops_what_runs_and_lets_nothing_begin_until_there_is_room(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.1.jsonl"
    earlier.write_bytes(b"x" * 200)
    (tmp_path / "no recording").write_bytes(b"x" * 1000)
    files = RecordingFiles(tmp_path, directory_bytes=300, count_seconds=0)
    running, new, later = (files.open("s", fence) for fence in (1, 2, 3))
    written(files, (running, {"text": "x" * 30}))
    assert not running.over
    with capture_logs() as logged:
        written(files, (running, {"text": "x" * 90}), (new, {"text": "x" * 90}))
    assert (running.over, new.over) == (True, True)
    assert {(each["event"], each["path"]) for each in logged} == {
        ("recording.stopped", str(running.path)),
        ("recording.not_begun", str(new.path)),
    }
    full = "the recordings have their 300 bytes: remove some"
    assert lines(running.path) == [{"text": "x" * 30}, {"stopped": full}]
    assert not new.path.exists()
    earlier.unlink()
    written(files, (later, {"text": "x" * 90}))
    files.close()
    assert lines(later.path) == [{"text": "x" * 90}]


def test_a_full_directory_is_not_counted_for_each_line(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.1.jsonl"
    earlier.write_bytes(b"x" * 200)
    files = RecordingFiles(tmp_path, directory_bytes=200, count_seconds=math.inf)
    first, second = files.open("s", 1), files.open("s", 2)
    written(files, (first, {"n": 1}))
    earlier.unlink()
    written(files, (second, {"n": 1}))
    files.close()
    assert (first.over, second.over) == (True, True)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_made_and_must_be_closed_to_others(tmp_path: Path) -> None:
    made = tmp_path / "deep" / "made"
    prepare_directory(made)
    prepare_directory(made)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    made.chmod(0o750)
    with pytest.raises(PermissionError, match="chmod 700"):
        prepare_directory(made)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        prepare_directory(tmp_path / "file")
    if os.getuid() == 0:
        made.chmod(0o700)
        os.chown(made, 12345, -1)
        with pytest.raises(PermissionError, match="another user"):
            prepare_directory(made)
