from __future__ import annotations

import pathlib

import pytest

import toktier
from tests import material, zoo
from tests.view.browser import Browser, display, opened
from toktier.view import Recording

LONG = "".join(f"Line {number}: the café 👍🏽 and `{number * number}` more.\n" for number in range(4_000))
BIDI = "\u202eRLO\u202c שלום \u2066x\u2069 and\x00NUL\u200b."


def chosen(browser: Browser) -> int:
    return int(browser.evaluate("drawing.chosen"))


def test_every_character_is_drawn_and_every_token_where_it_stands(browser: Browser, tmp_path: pathlib.Path) -> None:
    text = "The café, 👍🏽\tand\n  more <|im_end|>"
    recording = opened(browser, tmp_path, text)
    drawn = browser.evaluate(
        "[...document.querySelectorAll('#layer .piece')].map((e) => [e.dataset.token, e.textContent, e.className])"
    )
    assert not browser.complaints
    shown = "".join(part for _, part, _ in drawn).replace("▫", "").replace("→   ", "\t").replace("↵", "\n")
    assert shown == text
    assert [int(token) for token, _, _ in drawn] == list(range(recording.turns[0].ids))
    assert "special" in drawn[-1][2]
    cuts = {0, *recording.tok.family.cuts(text).tolist()}
    starts = recording.turns[0].stretch.places.starts.tolist()
    stops = recording.turns[0].stretch.places.stops.tolist()
    for token, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        begins = start > 0 and start in cuts and (token == 0 or stops[token - 1] <= start < stop)
        assert ("cut" in drawn[token][2].split()) == begins


@pytest.mark.parametrize("name", ["Llama 2", "BERT", "lookbehind"])
def test_what_is_dropped_is_drawn_as_well(browser: Browser, tmp_path: pathlib.Path, name: str) -> None:
    tok = material.registry().load(zoo.build(name))
    opened(browser, tmp_path, "the  quick e\u0301, İx中", tok=tok)
    assert not browser.complaints
    drawn = browser.evaluate("[...document.querySelectorAll('#layer .piece')].map((e) => e.textContent).join('')")
    assert drawn.replace("▫", "").replace("◌", "") == "the  quick e\u0301, İx中"
    assert ("bytes of the piece" in browser.evaluate("byId('token').innerText")) == (name != "lookbehind")
    assert ("no certified cuts: " in browser.evaluate("byId('facts').textContent")) == (not tok.family.supported)


def test_keys_go_from_token_to_token(browser: Browser, tmp_path: pathlib.Path) -> None:
    recording = opened(browser, tmp_path, LONG)
    browser.evaluate("byId('text').focus()")
    browser.press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert chosen(browser) == 2
    assert browser.evaluate("byId('text').getAttribute('aria-activedescendant')") == "t2"
    assert browser.evaluate("byId('t2').getAttribute('aria-selected')") == "true"
    browser.press("ArrowDown")
    line_2 = LONG.index("\n") + 1
    start = int(recording.turns[0].stretch.places.starts[chosen(browser)])
    assert line_2 <= start < line_2 + 20
    browser.press("ArrowUp")
    assert chosen(browser) == 2
    browser.press("End")
    assert chosen(browser) == recording.turns[0].ids - 1
    assert browser.evaluate(
        f"byId('t{chosen(browser)}').getBoundingClientRect().bottom <= byId('text').getBoundingClientRect().bottom"
    )
    browser.press("PageUp")
    rows = browser.evaluate("drawing.rows.rowOf(transcript.starts.values[drawing.chosen])")
    assert rows == browser.evaluate("drawing.rows.count") - 1 - browser.evaluate("drawing.onScreen")
    browser.press("Home")
    assert (chosen(browser), browser.evaluate("byId('text').scrollTop")) == (0, 0)


def test_the_token_that_is_chosen_or_pointed_at_is_described(browser: Browser, tmp_path: pathlib.Path) -> None:
    text = "é 👍 day"
    recording = opened(browser, tmp_path, text, place="#token=1")
    ids = recording.session.tolist()
    described = browser.evaluate("byId('token').innerText")
    assert f"ids[1]\nid\n{ids[1]}\n" in described
    last = len(ids) - 1
    x, y = browser.evaluate(
        f"(() => {{ const r = byId('t{last}').getBoundingClientRect(); return [r.x + 3, r.y + 3] }})()"
    )
    browser.point(x, y)
    described = browser.evaluate("byId('token').innerText")
    assert f"ids[{last}]\nid\n{ids[last]}\npiece\nĠday\nbytes\n20 64 61 79\ncharacters\ntext[3:7]\n" in described
    browser.point(5, 5)
    assert "ids[1]\n" in browser.evaluate("byId('token').innerText")


def test_text_and_ids_are_found(browser: Browser, tmp_path: pathlib.Path) -> None:
    recording = opened(browser, tmp_path, LONG)
    starts = recording.turns[0].stretch.places.starts
    browser.press("/")
    assert browser.evaluate("document.activeElement.id") == "find"
    browser.write("Line 3210:")
    browser.press("Enter")
    start, at = int(starts[chosen(browser)]), LONG.index("Line 3210:")
    assert start <= at < start + 12
    assert browser.evaluate("byId('layer').innerText").count("Line 3210:") == 1
    id = recording.session.tolist()[7]
    browser.evaluate(f"byId('find').value = '#{id}'")
    browser.evaluate("choose(0)")
    browser.press("Enter")
    assert chosen(browser) == recording.session.tolist().index(id, 1)
    browser.evaluate("byId('find').value = 'nowhere'")
    browser.press("Enter")
    assert browser.evaluate("byId('found').textContent") == "not there"
    browser.press("Escape")
    assert browser.evaluate("document.activeElement.id") == "text"


def test_a_text_is_found_more_than_once_in_a_token(browser: Browser, tmp_path: pathlib.Path) -> None:
    text = f"a{' ' * 30}b c"
    opened(browser, tmp_path, text)
    browser.press("/")
    browser.write(" ")
    places = [at for at, character in enumerate(text) if character == " "]
    for expected in (places, places, places[-2::-1]):
        found = list[int]()
        for _ in expected:
            if expected is places:
                browser.press("Enter")
            else:
                browser.evaluate("find(true)")
            found.append(browser.evaluate("last.at"))
        assert found == list(expected)


def test_only_what_is_on_screen_is_in_the_document(browser: Browser, tmp_path: pathlib.Path) -> None:
    opened(browser, tmp_path, LONG)
    for place in (0, 0.5, 1):
        browser.evaluate(
            f"(() => {{ const s = byId('text'); s.scrollTop = {place} * s.scrollHeight; drawing.draw() }})()"
        )
        rows = browser.evaluate("document.querySelectorAll('.row').length")
        assert rows <= 800 / 22 + 2
    assert "3999" in browser.evaluate("byId('layer').innerText")


def test_more_lines_than_a_browser_has_pixels_for_are_reached_all_the_same(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    opened(browser, tmp_path, "\n" * 400_000 + "the end")
    browser.evaluate("byId('text').focus()")
    assert browser.evaluate("drawing.scale") > 1
    browser.press("End")
    assert "the end" in browser.evaluate("byId('layer').innerText")
    browser.evaluate("(() => { byId('text').scrollTop = byId('text').scrollHeight; drawing.draw() })()")
    assert "the end" in browser.evaluate("byId('layer').innerText")
    browser.evaluate("(() => { byId('text').scrollTop = 0; drawing.draw() })()")
    assert browser.evaluate("document.querySelector('.number').textContent") == "1"


def test_a_token_as_long_as_the_text_is_described_in_part(browser: Browser, tmp_path: pathlib.Path) -> None:
    opened(browser, tmp_path, "x" * 20_000, tok=material.registry().load(zoo.build("BERT")))
    assert browser.evaluate("transcript.tokens.length") == 1
    assert len(browser.evaluate("byId('token').innerText")) < 600


def test_rows_hold_the_text_at_any_width(browser: Browser, tmp_path: pathlib.Path) -> None:
    text = "x" * 500 + "中文 " * 80 + "word " * 60 + "\n\n" + BIDI * 5 + "\n"
    opened(browser, tmp_path, text)
    for width in (1200, 320):
        browser.resize(width, 800)
        browser.settle()
        rows = browser.evaluate("[...drawing.rows.starts.values.subarray(0, drawing.rows.count)]")
        assert rows == sorted(set(rows))
        wide = browser.evaluate(
            "[...document.querySelectorAll('#layer .piece')]"
            ".filter((e) => e.offsetLeft + e.offsetWidth > byId('layer').clientWidth).length"
        )
        assert wide == 0


def test_each_turn_shows_the_text_and_the_ids_of_that_turn(
    browser: Browser, session: tuple[pathlib.Path, Recording]
) -> None:
    file, recording = session
    browser.open(file)
    text, texts = "", list[str]()
    for turn in recording.turns:
        text = text[: turn.stretch.start] + turn.stretch.text + text[turn.stretch.stop :]
        texts.append(text)
    assert texts[-1] == recording.session.text
    last = len(texts)
    for number in (last, 1, last - 1, 3, last):
        browser.evaluate(f"goTo({number})")
        assert browser.evaluate("transcript.text") == texts[number - 1]
        ids = browser.evaluate(
            "[...transcript.tokens.values.subarray(0, transcript.tokens.length)].map((t) => data.vocabulary[t][0])"
        )
        again = Recording(recording.tok)
        again.update(texts[number - 1], untrusted=recording.session.untrusted if number == last else ())
        assert ids == again.session.tolist()
        starts = browser.evaluate(
            "[...transcript.starts.values.subarray(0, transcript.starts.length)].map((p) => transcript.characters(p))"
        )
        assert starts == again.turns[0].stretch.places.starts.tolist()
        cuts = browser.evaluate(
            "[...transcript.cuts.values.subarray(0, transcript.cuts.length)].map((p) => transcript.characters(p))"
        )
        assert cuts == recording.tok.family.cuts(texts[number - 1]).tolist()
        rows = browser.evaluate("[...drawing.rows.starts.values.subarray(0, drawing.rows.count)]")
        browser.evaluate("drawing.rows.divide(0)")
        assert rows == browser.evaluate("[...drawing.rows.starts.values.subarray(0, drawing.rows.count)]")
    assert not browser.complaints


def test_rows_of_a_line_that_grows_are_those_of_the_whole(browser: Browser, tmp_path: pathlib.Path) -> None:
    recording = Recording(toktier.load("toktier-mini"))
    for part in ("A line that grows " * 20, "and grows", "th of its last word", ", " * 200):
        recording.append(part)
    recording.edit(100, 130, "shrinks")
    display(browser, tmp_path, recording)
    rows = "[...drawing.rows.starts.values.subarray(0, drawing.rows.count)]"
    for number in (4, 3, 2, 1, 2, 3, 4, 5, 1, 5):
        browser.evaluate(f"goTo({number})")
        divided = browser.evaluate(rows)
        browser.evaluate("drawing.rows.divide(0)")
        assert divided == browser.evaluate(rows)
    assert browser.evaluate("drawing.rows.lineOf(transcript.text.length - 1)") == 1


def test_the_slider_is_moved_by_keys_and_says_what_a_turn_did(
    browser: Browser, session: tuple[pathlib.Path, Recording]
) -> None:
    file, recording = session
    browser.open(file, "#turn=4")
    browser.evaluate("byId('turn').focus()")
    browser.press("ArrowLeft")
    assert browser.evaluate("transcript.turn") == 3
    turn = recording.turns[2]
    assert browser.evaluate("byId('turn-name').textContent") == f"3 of {len(recording.turns)}: {turn.operation}"
    numbers = browser.evaluate("byId('numbers').innerText").replace("\n", " ").replace(",", "")
    encoded = sum(stop - start for start, stop in turn.encoded)
    assert f"re-encoded {encoded} characters" in numbers
    assert f"replaced {len(turn.replaced)} ids by {len(turn.patch.ids)}" in numbers.replace(" 1 id ", " 1 ids ")
    assert browser.evaluate("byId('gone').querySelectorAll('.gone').length") == len(turn.replaced)
    first, count = turn.patch.start, len(turn.patch.ids)
    fates = browser.evaluate("Array.from({length: transcript.tokens.length}, (_, token) => drawing.fate(token))")
    assert [token for token, fate in enumerate(fates) if fate == "new"] == list(range(first, first + count))
    assert set(fates) == {"kept", "seen", "new"}
    assert chosen(browser) == first
    assert browser.evaluate(f"byId('t{first}').className").split()[1].startswith("new")


def test_an_address_leads_to_a_place_and_keeps_up_with_it(
    browser: Browser, session: tuple[pathlib.Path, Recording]
) -> None:
    file, _ = session
    browser.open(file, "#turn=2&token=17&theme=dark")
    assert browser.evaluate("[transcript.turn, drawing.chosen, byId('theme').value]") == [2, 17, "dark"]
    browser.evaluate("byId('text').focus()")
    browser.press("ArrowRight")
    browser.evaluate("new Promise((done) => setTimeout(done, 400))")
    assert browser.evaluate("location.hash") == "#turn=2&token=18&theme=dark"
    browser.open(file, "#turn=99999&token=-1&theme=pink&x=%E0%A4")
    assert not browser.complaints
    assert browser.evaluate("transcript.turn === data.turns.length && byId('theme').value === ''")


@pytest.mark.parametrize("operations", [0, 1, 2])
def test_no_text_is_a_page_too(browser: Browser, tmp_path: pathlib.Path, operations: int) -> None:
    recording = Recording(toktier.load("toktier-mini"))
    for _ in range(operations):
        recording.append("")
    display(browser, tmp_path, recording)
    browser.evaluate("byId('text').focus()")
    browser.press("ArrowRight", "ArrowDown", "End", "PageDown")
    assert not browser.complaints
    assert browser.evaluate("byId('token').innerText") == "No tokens."
