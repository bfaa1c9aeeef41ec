"""What `holdfast doctor` says about the place for workspaces."""

from dataclasses import replace
from pathlib import Path

from gateway.cli.commands.doctor_objects import check_objects
from gateway.config.loading import load_settings
from gateway.config.settings import Settings
from tests.support.s3 import CarelessS3Server, S3Place


def test_a_directory_is_looked_at_and_not_made(tmp_path: Path) -> None:
    found = check_objects(Settings(data_dir=tmp_path / "data"))
    assert (found.state, "does not exist yet" in found.told) == ("ok", True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "data" / "objects").mkdir(parents=True)
    assert check_objects(Settings(data_dir=tmp_path / "data")).told == f"{tmp_path}/data/objects"


def test_a_place_that_is_a_file_is_told_with_the_setting_to_change(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("")
    found = check_objects(Settings(data_dir=tmp_path))
    assert found.state == "fail"
    assert "HOLDFAST_OBJECTS" in found.advice


def test_a_directory_of_somebody_else_fails(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "theirs").write_text("")
    found = check_objects(Settings(data_dir=tmp_path))
    assert (found.state, "files that are not Holdfast's (theirs)" in found.told) == ("fail", True)


def test_a_bucket_that_works_is_told_so(s3_place: S3Place) -> None:
    found = check_objects(load_settings(s3_place.environ))
    assert (found.state, found.name) == ("ok", "objects")
    assert f"s3://{s3_place.bucket}" in found.told
    assert s3_place.secret_access_key not in f"{found}"


def test_a_bucket_that_is_not_there_and_wrong_keys_are_told_with_what_to_do(s3_place: S3Place) -> None:
    for wrong, says in (
        (replace(s3_place, bucket="no-such-bucket"), "create it"),
        (replace(s3_place, secret_access_key="guessed-it"), "AWS_SECRET_ACCESS_KEY"),
    ):
        found = check_objects(load_settings(wrong.environ))
        assert found.state == "fail"
        assert says in found.told
        assert "guessed-it" not in f"{found}"


def test_a_server_that_is_not_there_is_told(s3_place: S3Place) -> None:
    found = check_objects(load_settings(s3_place.at(1).environ))
    assert found.state == "fail"
    assert "nobody listens" in found.told
    assert "HOLDFAST_OBJECTS" in found.advice


def test_a_careless_server_fails_or_warns_as_a_start_would() -> None:
    with CarelessS3Server() as server:
        environ = server.make_bucket().environ
        found = check_objects(load_settings(environ))
        assert (found.state, "HOLDFAST_OBJECTS_UNCHECKED" in found.told) == ("fail", True)
        found = check_objects(load_settings({**environ, "HOLDFAST_OBJECTS_UNCHECKED": "true"}))
        assert found.state == "warn"
