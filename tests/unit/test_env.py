"""Settings from the environment: typed, and loud about what is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane import env

NAME = "TERRACE_FOR_THIS_TEST"


@pytest.mark.parametrize(
    ("word", "meaning"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("FALSE", False)]
)
def test_flag_reads_common_words(monkeypatch: pytest.MonkeyPatch, word: str, meaning: bool) -> None:
    """Yes and no come in the ways that people write them."""
    monkeypatch.setenv(NAME, word)

    assert env.flag(NAME, default=not meaning) is meaning


@pytest.mark.parametrize("read", [env.text, env.secret, env.origin])
def test_empty_counts_as_unset(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[str], str | None]
) -> None:
    """A variable that is set to nothing gives the default."""
    monkeypatch.setenv(NAME, "")

    assert read(NAME) is None


def test_nonsense_names_variable_value_and_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong value stops the process with all that is needed to mend it."""
    monkeypatch.setenv(NAME, "many")

    with pytest.raises(ImproperlyConfigured) as caught:
        env.integer(NAME, 8, least=0, most=100)

    assert str(caught.value) == (
        f"{NAME}='many' is not a whole number from 0 to 100, for example {NAME}=8"
    )


@pytest.mark.parametrize("value", ["-1", "101", "1.5", "٣٣٣"])
def test_integer_outside_its_range_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Both ends of the range hold."""
    monkeypatch.setenv(NAME, value)

    with pytest.raises(ImproperlyConfigured, match="is not a whole number from 0 to 100"):
        env.integer(NAME, 8, least=0, most=100)


@pytest.mark.parametrize(
    "value", ["terrace.example", "ftp://x", "https://x/path", "https://", "//x"]
)
def test_origin_wants_scheme_and_host_only(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """An address with a path would make wrong links everywhere."""
    monkeypatch.setenv(NAME, value)

    with pytest.raises(ImproperlyConfigured, match="is not scheme://host"):
        env.origin(NAME)


def test_origin_loses_its_slash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trailing slash is forgiven."""
    monkeypatch.setenv(NAME, "https://terrace.example:8443/")

    assert env.origin(NAME) == "https://terrace.example:8443"


def test_words_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces and empty places do not count."""
    monkeypatch.setenv(NAME, " a.example, ,b.example ")

    assert env.words(NAME) == ["a.example", "b.example"]


def test_choice_outside_its_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that would do are named."""
    monkeypatch.setenv(NAME, "LOUD")

    with pytest.raises(ImproperlyConfigured, match="is not one of DEBUG, INFO"):
        env.choice(NAME, "INFO", among=("INFO", "DEBUG"))


def test_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`NAME_FILE` is how container platforms hand secrets over."""
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    monkeypatch.setenv(f"{NAME}_FILE", str(file))

    assert env.is_set(NAME)
    assert env.secret(NAME) == "s3cret"


def test_secret_in_both_places_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody has to guess which of two counts."""
    monkeypatch.setenv(NAME, "one")
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "other"))

    with pytest.raises(ImproperlyConfigured, match=f"Both {NAME} and {NAME}_FILE are set"):
        env.secret(NAME)


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), ("\n", "is empty")])
def test_secret_file_without_a_secret_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, words: str
) -> None:
    """A missing or empty file is no empty password."""
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv(f"{NAME}_FILE", str(file))

    with pytest.raises(ImproperlyConfigured, match=words):
        env.secret(NAME)
