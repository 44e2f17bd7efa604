from core.logs.lines import Speaker, last_line
from deploy.supervisor.role import last_words
from tests.deploy.tables import Tables

rows = Tables(__file__)


@rows("line", "return_code", "expected")
def test_the_last_line_counts_where_it_says_why(line: str, return_code: int, expected: str) -> None:
    assert last_words(line, "ps:0", "127.0.0.1:2222", return_code) == expected


def test_so_does_one_for_programs() -> None:
    line = last_line("json", Speaker("ps:0", "127.0.0.1:2222"), "no memory\nleft")
    assert last_words(line, "ps:0", "127.0.0.1:2222", 23) == "no memory"
