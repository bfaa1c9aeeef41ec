"""A path that names another file than the one that was opened by it."""

from pathlib import Path

from persistence.sqlite.file_identity import FileIdentity, database_files


def test_a_file_that_is_removed_replaced_or_shadowed_is_named(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    files = FileIdentity([one, two, tmp_path / "never there"])
    assert files.moved() is None
    one.write_text("its content may change")
    assert files.moved() is None
    with one.open():  # as long as it is open, its number is nobody else's
        one.unlink()
        assert files.moved() == one
        one.write_text("another")
        assert files.moved() == one


def test_a_directory_that_became_a_file_is_named(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "file").write_text("")
    files = FileIdentity([place / "file"])
    (place / "file").unlink()
    place.rmdir()
    place.write_text("")
    assert files.moved() == place / "file"


def test_the_files_of_a_database_lie_where_its_symlink_leads(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "spool.db").symlink_to(tmp_path / "disk" / "real.db")
    wal = tmp_path.resolve() / "disk" / "real.db-wal"
    assert database_files(tmp_path / "spool.db")[:2] == (tmp_path / "spool.db", wal)
