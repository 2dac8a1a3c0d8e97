"""What commands write to, and what they tell: the shell in this process."""

import subprocess
import sys

import pytest

import gbdnn
from gbdnn.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function: the command in this process; its exit code and what it wrote."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gbdnn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def well(run):
    def well(*arguments):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        return out

    return well


@pytest.fixture
def fails(run):
    def fails(*arguments, match):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        assert match in err
        return err

    return fails


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a network and features, each in a store."""
    from gbdnn.gallery import digits, features_from_images

    root = tmp_path_factory.mktemp("made")
    gbdnn.save(gbdnn.radixnet(1024, 8, seed=1), root / "net")
    gbdnn.save(features_from_images(digits(), 1024, inputs=200), root / "X")
    return root


def held(path):
    """All that a file or a folder holds."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {file: file.read_bytes() for file in files if file.is_file()}


def test_nothing_is_replaced_without_a_word(made, tmp_path, well, fails):
    net, X, Y = tmp_path / "net", tmp_path / "X", tmp_path / "Y"
    well("generate", net, "--layers", 4)
    well("generate", X, "--features", "digits", "--inputs", 5)
    well("generate", tmp_path / "X.tsv", "--features", "digits", "--inputs", 5)
    well("convert", made / "net", tmp_path / "net.onnx")
    well("infer", net, made / "X", "-o", Y, "--to", "store")
    well("infer", net, made / "X", "-o", tmp_path / "Y.tsv")
    features = ["--features", "digits", "--inputs"]
    commands = [
        (["generate", net, "--layers", 2], "net: exists already, a network of 4 layers; --force"),
        (["generate", net, "--layers", 4, "--restart"], "a network of 4 layers"),
        (["generate", X, *features, 6], "features or activations of 5 inputs"),
        (["generate", tmp_path / "X.tsv", *features, 6], "X.tsv: exists already, a file of "),
        (["generate", Y, "--layers", 2], "features or activations of 200 inputs"),
        (["convert", made / "net", net], "a network of 4 layers"),
        (["convert", net, tmp_path / "net.onnx"], "net.onnx: exists already, a file of "),
        (["infer", made / "net", made / "X", "-o", Y], "activations of 200 inputs"),
        (["infer", net, made / "X", "-o", Y, "--restart"], "activations of 200 inputs"),
        (["infer", net, made / "X", "-o", Y, "--categories"], "activations of 200 inputs"),
        (["infer", net, made / "X", "-o", tmp_path / "Y.tsv"], "Y.tsv: exists already, a file of"),
        (["infer", made / "net", made / "X", "-o", net], "a network of 4 layers"),
    ]
    before = held(tmp_path)
    for command, match in commands:
        fails(*command, match=match)
        assert held(tmp_path) == before, command
    for command, _ in commands:
        well(*command, "--force")
    assert held(tmp_path) != before
    assert gbdnn.io.store_kind(net) == "features"


def test_what_is_complete_is_not_written_again(made, tmp_path, well, fails):
    net, out = tmp_path / "net", tmp_path / "out"
    well("generate", net, "--layers", 4)
    well("convert", net, tmp_path / "files", "--to", "tsv")
    well("convert", net, out)
    for command in (["generate", net, "--layers", 4], ["convert", net, out]):
        before = held(tmp_path)
        for options in ([], ["--force"]):
            assert "is complete: nothing was left to write" in well(*command, *options)
            assert held(tmp_path) == before
        assert "is complete" not in well(*command, "--restart", "--force")
    # Files are compared by what is in them.
    well("convert", tmp_path / "files", out, "--force")
    assert "is complete" in well("convert", tmp_path / "files", out)
    file = tmp_path / "files" / "n1024-l2.tsv"
    text = file.read_text()
    file.write_text(text.replace("0.0625", "0.0626", 1))
    assert file.stat().st_size == len(text)
    fails("convert", tmp_path / "files", out, match="exists already, a network of 4 layers")


def test_what_holds_nothing_is_written_to(made, tmp_path, well):
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "folder").mkdir()
    well("infer", made / "net", made / "X", "-o", tmp_path / "empty.tsv", "--categories")
    well("generate", tmp_path / "folder", "--layers", 1)
    well("infer", made / "net", made / "X", "-o", "/dev/null")
    out = tmp_path / "out.tsv"
    out.write_text("before\n")
    command = [sys.executable, "-m", "gbdnn", "infer", made / "net", made / "X", "--categories"]
    with out.open("a") as file:
        done = subprocess.run([*command, "-o", "/dev/stdout"], stdout=file, check=False)
    assert done.returncode == 0
    assert out.read_text().startswith("before\n")
