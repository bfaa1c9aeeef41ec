"""Recordings are private and bounded, and a disk that fails ends a recording and nothing else."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gateway.session.recording.files import RecordingFile, RecordingFiles, prepare_directory


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def opened(files: RecordingFiles, fence: int = 1) -> RecordingFile:
    file = files.open("s", fence)
    assert file is not None
    return file


def test_each_recording_is_a_file_of_its_own_that_nobody_else_reads(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path)
    first, second, same = opened(files), opened(files, 2), opened(files)
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
    file = opened(files)
    for _ in range(10):
        file.write({"text": "x" * 30})
    files.close()
    assert file.over
    assert lines(file.path)[:-1] == [{"text": "x" * 30}] * 2
    assert lines(file.path)[-1] == {"stopped": "the recording has its 100 bytes"}


def test_a_disk_that_does_not_follow_ends_a_recording(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path, waiting_bytes=10)
    file = opened(files)
    file.write({"text": "x" * 30})
    files.close()
    assert lines(file.path) == [{"stopped": "the disk is too slow for it"}]


def test_a_disk_that_is_full_ends_one_recording_and_no_other(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path)
    broken, other = opened(files), opened(files, 2)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, broken.fd)
    os.close(full)
    broken.write({"n": 1})
    other.write({"n": 2})
    files.close()
    assert broken.over
    broken.write({"n": 3})
    assert not other.over
    assert lines(other.path) == [{"n": 2}]
    os.close(other.fd)


def test_a_directory_that_is_gone_means_no_recording(tmp_path: Path) -> None:
    assert RecordingFiles(tmp_path / "gone").open("s", 1) is None
    (tmp_path / "s.1.jsonl").symlink_to("/etc/passwd")
    file = opened(RecordingFiles(tmp_path))
    assert file.path.name == "s.1.1.jsonl", "what stands there is left alone"
    os.close(file.fd)


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
