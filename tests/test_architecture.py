"""The source obeys the rules of `import_rules.py`, `source_rules.py`, `mirror_rules.py` and
`duration_rules.py`.

The second half tests the rules: each must find a planted violation and accept a similar valid text.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import duration_rules, import_rules, mirror_rules, source_rules
from tests.import_rules import Rule, SourceFile
from tests.planted_violations import NEIGHBOURS, VIOLATIONS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("broker_core", "pyspark_rmq")
TREES = (*PACKAGES, "tests", "examples", "benchmarks", "tools")
TREE_STARTS = tuple(f"{tree}/" for tree in TREES)
NOT_OURS = frozenset({"__pycache__", "build", "dist", "node_modules", "target"})
# In a linked worktree `.git` is a file that names its repository.
NOT_TEXT = frozenset({".git", "LICENSE"})
NATIVE = frozenset({".c", ".h", ".pyx"})
TEXT = NATIVE | {".cfg", ".java", ".md", ".py", ".sh", ".toml", ".xml", ".yaml", ".yml", ""}

FILE_RULES: tuple[Rule, ...] = (
    import_rules.import_direction,
    import_rules.feature_imports,
    import_rules.foreign_imports,
    import_rules.data_through_the_seam,
    source_rules.function_length,
    source_rules.module_docstring,
    source_rules.no_real_sleep,
    source_rules.no_disguised_sleep,
    source_rules.no_code_from_data,
    source_rules.no_blind_except,
    source_rules.no_private_access,
    source_rules.no_hand_formatting,
    source_rules.no_untyped_wiring,
    source_rules.no_setting_by_name,
    source_rules.no_late_binding,
    source_rules.no_print,
    source_rules.no_hidden_clock,
    duration_rules.no_asserted_duration,
)


def _project_paths() -> Iterator[Path]:
    tops = [ROOT / tree for tree in (*TREES, "docs", ".ci")]
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name not in NOT_TEXT)
    for top in tops:
        for path in sorted(top.rglob("*")):
            if path.is_file() and not NOT_OURS.intersection(path.relative_to(ROOT).parts):
                yield path


TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in _project_paths()
    if path.suffix in TEXT
}
SOURCES = [SourceFile(path, text) for path, text in TEXTS.items() if path.endswith(".py")]
PACKAGE_SOURCES = [file for file in SOURCES if file.path.startswith(PACKAGES)]


@pytest.fixture(autouse=True, scope="module")
def _trees() -> Iterator[None]:
    """All sources are parsed at once, and forgotten at the end."""
    with import_rules.no_garbage_collection():
        for file in SOURCES:
            assert file.nodes
        gc.freeze()
    yield
    for file in SOURCES:
        del file.tree, file.nodes


def _report(findings: Iterable[str]) -> None:
    found = list(findings)
    assert not found, "\n" + "\n".join(found)


def test_the_sources_were_found() -> None:
    assert {"broker_core/errors.py", "tests/test_architecture.py"} <= TEXTS.keys()


@pytest.mark.parametrize("rule", FILE_RULES, ids=lambda rule: rule.__name__)
def test_every_source_obeys(rule: Rule) -> None:
    _report(finding for file in SOURCES for finding in rule(file))


@pytest.mark.parametrize(
    ("rule", "exceptions"),
    [
        (source_rules.no_private_access, source_rules.MAY_USE_PRIVATE),
        (source_rules.no_hand_formatting, source_rules.MAY_SKIP_FORMAT),
        (source_rules.no_setting_by_name, source_rules.MAY_SET_BY_NAME),
        (source_rules.no_late_binding, source_rules.MAY_BIND_LATE),
        (source_rules.no_code_from_data, source_rules.MAY_NAME_THEM),
        (source_rules.no_real_sleep, source_rules.MAY_SLEEP),
        (source_rules.no_blind_except, source_rules.MAY_CATCH_ALL),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_exception_is_out_of_date(rule: Rule, exceptions: Mapping[str, str]) -> None:
    """Under another name, the file or a file of the folder breaks the rule."""
    for allowed in exceptions:
        renamed = [
            SourceFile(f"{file.path.partition('/')[0]}/not_listed.py", file.text)
            for file in SOURCES
            if file.path.startswith(allowed)
        ]
        assert any(list(rule(file)) for file in renamed), f"{allowed} needs no exception"


@pytest.mark.parametrize("package", import_rules.CONFINED)
def test_no_place_of_a_foreign_package_is_out_of_date(package: str) -> None:
    for place in import_rules.CONFINED[package][1]:
        found = [file for file in SOURCES if file.path.startswith(place)]
        modules = {module.split(".")[0] for file in found for _, module, _ in file.imports()}
        assert package in modules, f"{place} does not use {package}"


def test_the_connector_uses_public_names_only() -> None:
    public = import_rules.public_names(SourceFile("door.py", TEXTS["broker_core/__init__.py"]))
    check = import_rules.connector_uses_public_names
    _report(finding for file in SOURCES for finding in check(file, public))


def test_no_module_imports_itself_through_others() -> None:
    _report(import_rules.import_cycles(PACKAGE_SOURCES))


def test_the_rooms_form_no_circle() -> None:
    assert not import_rules.circles(import_rules.ROOMS)


def test_the_features_of_the_broker_form_no_circle() -> None:
    uses: dict[str, set[str]] = {}
    for user, used in import_rules.FEATURE_USES:
        uses.setdefault(user, set()).add(used)
    assert not import_rules.circles(uses)


def test_a_planted_circle_is_found() -> None:
    line = {"cli": {"broker"}, "broker": {"store", "codec"}, "store": {"codec"}, "codec": set()}
    assert import_rules.circles(line) == set()
    assert import_rules.circles({**line, "codec": {"store"}}) == {"cli", "broker", "store", "codec"}
    assert import_rules.circles({**line, "codec": {"codec"}}) == line.keys()


def test_no_arrow_between_rooms_is_out_of_date() -> None:
    used: dict[str, set[str]] = {room: set() for room in import_rules.ROOMS}
    files: dict[tuple[str, str], set[str]] = {}
    for file in PACKAGE_SOURCES:
        _, _, rest = file.path.partition("broker_core/")
        room = rest.removesuffix(".py").split("/")[0]
        for _, module, _ in file.imports():
            if room in used and module.startswith("broker_core."):
                target = module.split(".")[1]
                used[room].add(target)
                files.setdefault((room, target), set()).add(file.path)
    unused = {
        f"{room} does not import {target}"
        for room, targets in import_rules.ROOMS.items()
        for target in targets - used[room] - import_rules.EVERYWHERE - {room}
    }
    assert not unused
    for arrow, allowed in import_rules.NARROWED.items():
        assert allowed == files[arrow]


def test_every_folder_of_the_broker_and_every_declared_use_is_there() -> None:
    folders, uses = set(), set()
    for file in PACKAGE_SOURCES:
        if file.path.startswith("broker_core/broker/") and file.path.count("/") > 2:
            folder = file.path.split("/")[2]
            folders.add(folder)
            uses |= {(folder, used) for _, used in import_rules.broker_imports(file)}
    assert folders == import_rules.BROKER_FOLDERS
    assert not set(import_rules.FEATURE_USES) - uses, "declared, but not used"


def test_files_fit_their_ceiling() -> None:
    measured = {p: t for p, t in TEXTS.items() if Path(p).suffix in NATIVE | {".py"}}
    _report(f for path, text in measured.items() for f in source_rules.file_length(path, text))


def test_folders_fit_their_ceiling() -> None:
    _report(source_rules.folder_size(TEXTS))


def test_every_module_has_its_test() -> None:
    _report(mirror_rules.missing_tests(TEXTS))


def test_every_path_that_a_rule_names_exists() -> None:
    _report(f"{name}: is not there" for name in _named_paths() if not (ROOT / name).exists())


def _named_paths() -> Iterator[str]:
    """Keys and entries of the rules' tables that look like a path of the project."""
    for module in (source_rules, import_rules, duration_rules, mirror_rules):
        left: list[object] = [v for k, v in vars(module).items() if k.isupper()]
        while left:
            value = left.pop()
            if isinstance(value, Mapping):
                left += [*value.keys(), *value.values()]
            elif isinstance(value, tuple | list | set | frozenset):
                left += value
            elif isinstance(value, str) and value.startswith(TREE_STARTS) and " " not in value:
                yield value


@pytest.mark.parametrize(
    "folder", ["broker_core/codec", "pyspark_rmq/sink", "benchmarks", "examples", "tools"]
)
@pytest.mark.parametrize("one_more", ["crc.c", "crc.h", "crc.py", "crc.sh"])
def test_an_overfull_folder_is_found(folder: str, one_more: str) -> None:
    paths = [f"{folder}/{number}.py" for number in range(source_rules.FOLDER_FILES_MAX)]
    # Other folders, and tests, are not counted.
    others = [f"{folder}/below/{one_more}", *(f"tests/codec/{n}.py" for n in range(99))]
    _report(source_rules.folder_size([*paths, *others]))
    (finding,) = source_rules.folder_size([*paths, *others, f"{folder}/{one_more}"])
    assert finding.startswith(f"{folder}:")


def test_a_module_without_a_test_is_found() -> None:
    row = mirror_rules.TestedTogether("listed", "tests/codec/test_own.py", "for this test")
    listed = {"broker_core/codec": (row,)}
    own = ["broker_core/codec/own.py", "tests/codec/test_own.py", "broker_core/codec/listed.py"]
    exempt = ["broker_core/broker/pop/feature.py", "broker_core/codec/__init__.py"]
    check = mirror_rules.missing_tests
    _report(check([*own, *exempt], listed))
    for path in ("broker_core/codec/new.py", "broker_core/broker/pop/own.py", "pyspark_rmq/own.py"):
        (finding,) = check([*own, path], listed)
        assert finding.startswith(f"{path}:")
    # Entries of the list that are out of date.
    assert list(check(own[:2], listed)), "the module is gone"
    assert list(check([*own, "tests/codec/test_listed.py"], listed)), "it has a test of its own"
    assert list(check([own[2]], listed)), "the test that is named is gone"


def test_the_paths_that_rules_name_are_found() -> None:
    assert {"broker_core/runtime/clock.py", "pyspark_rmq/data_source.py"} <= {*_named_paths()}


def test_the_median_file_is_small() -> None:
    assert source_rules.median_length(PACKAGE_SOURCES) < source_rules.MEDIAN_LINES_MAX


def test_file_names_name_a_thing() -> None:
    _report(finding for path in TEXTS for finding in source_rules.file_name(path))


def test_no_file_names_a_path_of_one_machine() -> None:
    _report(f for path, text in TEXTS.items() for f in source_rules.no_machine_path(path, text))


def _cases(planted: Mapping[Rule, Sequence[tuple[str, str]]]) -> list[Any]:
    return [
        pytest.param(rule, path, text, id=f"{rule.__name__}-{number}")
        for rule, texts in planted.items()
        for number, (path, text) in enumerate(texts)
    ]


@pytest.mark.parametrize(("rule", "path", "text"), _cases(VIOLATIONS))
def test_a_planted_violation_is_found(rule: Rule, path: str, text: str) -> None:
    findings = list(rule(SourceFile(path, text)))
    assert findings
    assert all(finding.startswith(f"{path}:") for finding in findings)


@pytest.mark.parametrize(("rule", "path", "text"), _cases(NEIGHBOURS))
def test_an_allowed_neighbour_is_left_alone(rule: Rule, path: str, text: str) -> None:
    _report(rule(SourceFile(path, text)))


def test_every_file_rule_is_shown_a_violation() -> None:
    assert VIOLATIONS.keys() == set(FILE_RULES)


@pytest.mark.parametrize(
    "text",
    [
        "from broker_core.storage import commit_log",
        "from broker_core import hidden",
        "import broker_core.codec",
        "import broker_core\nbroker_core.storage",
    ],
)
def test_a_connector_that_reaches_inside_is_found(text: str) -> None:
    check = import_rules.connector_uses_public_names
    assert list(check(SourceFile("pyspark_rmq/source/a.py", text), {"MessageStore"}))


def test_a_connector_may_use_public_names() -> None:
    text = "import broker_core\nfrom broker_core import MessageStore\nbroker_core.MessageStore"
    check = import_rules.connector_uses_public_names
    _report(check(SourceFile("pyspark_rmq/source/a.py", text), {"MessageStore"}))


def test_public_names_are_read_from_the_door() -> None:
    door = SourceFile(
        "broker_core/__init__.py", '_PUBLIC = {"MessageStore": "a", "open_store": "b"}'
    )
    assert import_rules.public_names(door) == {"MessageStore", "open_store"}


def test_a_planted_cycle_is_found() -> None:
    one = SourceFile("broker_core/codec/one.py", "from broker_core.codec.two import a")
    two = SourceFile("broker_core/codec/two.py", "from broker_core.codec import one")
    three = SourceFile("broker_core/codec/three.py", "from broker_core.codec import two")
    assert len(import_rules.import_cycles([one, two, three])) >= 2
    assert import_rules.import_cycles([one, three]) == []


def test_an_overlong_file_is_found() -> None:
    longest = "x = 1\n" * source_rules.FILE_LINES_MAX
    assert list(source_rules.file_length("broker_core/a.py", longest + "y = 2\n"))
    _report(source_rules.file_length("broker_core/a.py", longest))
    longest_c = "int x;\n" * source_rules.C_LINES_MAX
    assert list(source_rules.file_length("broker_core/a.c", longest_c + "int y;\n"))
    _report(source_rules.file_length("broker_core/a.c", longest_c))


def test_a_heavy_median_is_measured() -> None:
    files = [SourceFile(f"broker_core/{n}.py", "x = 1\n" * n) for n in (10, 300, 400)]
    assert source_rules.median_length(files) == 300


@pytest.mark.parametrize("name", ["utils", "string_helpers", "common", "queue_manager", "impl"])
def test_a_drawer_is_found(name: str) -> None:
    assert list(source_rules.file_name(f"broker_core/storage/{name}.py"))
    assert list(source_rules.file_name(f"broker_core/{name}/a.py"))


def test_a_noun_is_left_alone() -> None:
    _report(source_rules.file_name("broker_core/storage/log/commit_log.py"))


@pytest.mark.parametrize("top", ["home", "root", "Users", "tmp", "work"])
def test_a_machine_path_is_found(top: str) -> None:
    assert list(source_rules.no_machine_path("docs/a.md", f"see /{top}/me/store"))
    _report(source_rules.no_machine_path("docs/a.md", f"see docs/{top}/me, https://a.b/{top}/c"))
