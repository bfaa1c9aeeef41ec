"""The tar format, read and written. The reader reports what the archive contains, in whatever pieces it arrives."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.bridge.tree.tar import BLOCK, END, Form, TarMember, TarReader, encode, padded
from sandbox.protocol.entry import MAX_FILE, MAX_MTIME_NS
from sandbox.system.problem import TreeProblem

Read = list[tuple[TarMember, bytes]]


def read(archive: bytes, step: int = 1 << 20) -> Read:
    reader = TarReader()
    found: Read = []
    for start in range(0, len(archive), step):
        for item in reader.feed(archive[start : start + step]):
            if isinstance(item, TarMember):
                found.append((item, b""))
            else:
                found[-1] = (found[-1][0], found[-1][1] + item)
    reader.finish()
    return found


names = st.binary(min_size=1, max_size=300).filter(lambda name: b"\0" not in name)
stamps = {"mode": st.integers(0, 0o777), "mtime_ns": st.integers(-MAX_MTIME_NS, MAX_MTIME_NS)}
links = st.sampled_from([Form.SYMLINK, Form.HARD_LINK])
members = st.one_of(
    st.builds(TarMember, names, st.just(Form.DIRECTORY), **stamps),
    st.builds(TarMember, names, links, size=st.just(0), target=names, **stamps),
    st.builds(TarMember, names.filter(lambda name: not name.endswith(b"/")), st.just(Form.FILE), **stamps),
)


@given(rows=st.lists(st.tuples(members, st.binary(max_size=2000))), step=st.integers(1, 3000), zeros=st.integers(0, 30))
def test_what_is_written_is_read_in_pieces_of_any_size(rows: Read, step: int, zeros: int) -> None:
    archive, expected = b"", []
    for member, given_content in rows:
        content = given_content if member.form is Form.FILE else b""
        one = TarMember(member.name, member.form, member.mode, member.mtime_ns, len(content), member.target)
        archive += encode(one) + padded(content)
        expected.append((one, content))
    assert read(archive + END + bytes(zeros * 100), step) == expected


def test_the_standard_library_reads_what_is_written() -> None:
    rows = [
        (TarMember(b"workspace/d/", Form.DIRECTORY, 0o755, 5 * 10**9), b""),
        (TarMember(b"workspace/d/" + b"n" * 120, Form.FILE, 0o640, 1_500_000_000_123_456_789, 3), b"abc"),
        (TarMember("workspace/\u00e4".encode(), Form.SYMLINK, 0o777, -1, 0, b"t" * 200), b""),
    ]
    archive = b"".join(encode(member) + padded(content) for member, content in rows) + END
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = tar.getmembers()
        assert [one.name for one in found] == ["workspace/d", "workspace/d/" + "n" * 120, "workspace/\u00e4"]
        assert [one.linkname for one in found] == ["", "", "t" * 200]
        assert found[1].mode == 0o640
        assert float(found[1].mtime) == pytest.approx(1_500_000_000.123456789)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_the_standard_library_writes_is_read(form: int) -> None:
    buffer = io.BytesIO()
    deep = "/".join(["directory" * 3] * 5)
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name in ("plain", deep, "x" * 90 + "/" + "y" * 90):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(name), 17, 0o4751
            tar.addfile(info, io.BytesIO(name.encode()))
        if form != tarfile.USTAR_FORMAT:
            info = tarfile.TarInfo("z" * 300)
            info.type, info.linkname = tarfile.SYMTYPE, "t" * 300
            tar.addfile(info)
    found = read(buffer.getvalue(), 100)
    assert [content for _, content in found if content] == [member.name for member, _ in found[:3]]
    assert {(member.mode, member.mtime_ns) for member, _ in found[:3]} == {(0o751, 17 * 10**9)}
    if form != tarfile.USTAR_FORMAT:
        assert (found[3][0].name, found[3][0].target) == (b"z" * 300, b"t" * 300)


def test_a_file_larger_than_octal_digits_can_say_is_written_and_read() -> None:
    large = TarMember(b"large", Form.FILE, 0o644, 0, 9 << 30)
    assert next(TarReader().feed(encode(large))) == large


def number(value: int) -> bytes:
    return b"%011o\0" % value


def header(
    name: bytes = b"x",
    flag: bytes = b"0",
    size: bytes = number(0),
    mtime: bytes = number(0),
    magic: bytes = b"ustar\x0000",
) -> bytes:
    block = (
        name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size + mtime + b" " * 8 + flag + bytes(100) + magic
    )
    block = block.ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def extended(*records: bytes, flag: bytes = b"x") -> bytes:
    content = b"".join(records)
    return header(b"pax", flag, number(len(content))) + padded(content) + header() + END


BAD = {
    "nothing": b"",
    "one zero block": bytes(BLOCK),
    "no end": header(),
    "one zero block at the end": header() + bytes(BLOCK),
    "a zero block in the middle": header() + bytes(BLOCK) + header(b"y") + END,
    "something after the end": header() + END + header(b"y"),
    "no archive": b"a text that is long enough" * 40,
    "a damaged header": header()[:10] + b"!" + header()[11:] + END,
    "a negative size": header(size=b"\xff" * 12) + END,
    "a large negative size": header(size=b"\xff" + bytes(11)) + END,
    "a size beyond any": header(size=b"\x80" + b"\xff" * 11) + END,
    "a size that is none": header(size=b"-0000000001\0") + END,
    "a directory with content": header(flag=b"5", size=number(512)) + bytes(512) + END,
    "a symlink with content": header(flag=b"2", size=number(512)) + bytes(512) + END,
    "a size of another base": header(size=b"\x81" + bytes(11)) + END,
    "a time that no file has": header(mtime=b"\x80" + b"\xff" * 11) + END,
    "a PAX size below zero": extended(b"11 size=-1\n"),
    "a PAX size with a sign": extended(b"11 size=+1\n"),
    "a PAX size of many digits": extended(b"4009 size=" + b"9" * 3998 + b"\n"),
    "a PAX record of no length": extended(b"0 path=x\n"),
    "a PAX record that ends before it begins": extended(b"3 path=x\n"),
    "a PAX record beyond its header": extended(b"99 path=x\n"),
    "a PAX record without an end": extended(b"9 path=xy"),
    "a PAX record without a value": extended(b"7 path\n"),
    "a PAX record of a negative length": extended(b"-9 path=x\n"),
    "a PAX time that is none": extended(b"13 mtime=now\n"),
    "a name for all": extended(b"9 path=x\n", flag=b"g"),
    "a PAX header of nothing": header(b"pax", b"x") + header() + END,
    "a PAX header beyond bounds": header(b"pax", b"x", number(2 << 20)) + END,
    "a long name beyond bounds": header(b"pax", b"L", number(1 << 30)) + END,
    "PAX headers without end": (header(b"pax", b"x", number(9)) + padded(b"9 path=x\n")) * 9 + header() + END,
    "GNU sparse": header(flag=b"S") + END,
    "PAX sparse": extended(b"22 GNU.sparse.major=1\n"),
    "a device": header(flag=b"3") + END,
    "a FIFO": header(flag=b"6") + END,
    "a type of nobody": header(flag=b"Z") + END,
    "a volume label": header(flag=b"V") + END,
    "a continued file": header(flag=b"M") + END,
}


@pytest.mark.parametrize("archive", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("step", [1, 512, 1 << 20])
def test_what_cannot_be_is_refused(archive: bytes, step: int) -> None:
    with pytest.raises(TreeProblem, match="archive") as caught:
        read(archive, step)
    assert caught.value.code == "bad_archive"


def test_what_a_reader_need_not_know_is_passed_over() -> None:
    archive = extended(b"18 comment=a word\n", b"20 SCHILY.xattr.u=x\n", b"18 mtime=-1.50000\n", b"8 uid=0\n")
    assert [(member.name, member.mtime_ns) for member, _ in read(archive)] == [(b"x", -1_500_000_000)]
    assert len(read(extended(b"18 comment=a word\n", flag=b"g"))) == 1


def test_archives_older_than_the_standard_are_read() -> None:
    archive = (
        header(b"d/", b"\0", magic=bytes(8)) + header(b"d/f", b"\0", number(1), magic=bytes(8)) + padded(b"x") + END
    )
    assert [(member.form, content) for member, content in read(archive)] == [(Form.DIRECTORY, b""), (Form.FILE, b"x")]


@given(junk=st.binary(max_size=3000), at=st.integers(0, 3000), step=st.integers(1, 1500))
def test_whatever_comes_ends_in_members_or_in_a_refusal(junk: bytes, at: int, step: int) -> None:
    good = (
        encode(TarMember(b"a" * 150, Form.FILE, 0o644, 1, 700))
        + padded(b"c" * 700)
        + encode(TarMember(b"l", Form.SYMLINK, 0o777, 1, 0, b"t"))
    )
    archive = (good + END)[:at] + junk + (good + END)[at + len(junk) :]
    try:
        found = read(archive, step)
    except TreeProblem:
        return
    assert all(0 <= member.size <= MAX_FILE for member, _ in found)
