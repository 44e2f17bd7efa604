"""The live page of sixteen nodes, and the report of their training, as a browser shows them."""

from tests.cluster.pages.browser import chromium, looking, picture
from tests.lab.sixteen_pis import HUB, SixteenPis
from tests.lab.tunnel import brought_here
from tests.lazy import expect


def a_training_on_the_page(cluster: SixteenPis) -> None:
    """Look at the page through SSH while a training runs, and at its report.

    `PSCLUSTER_PICTURES=docs/images` takes the documentation's two pictures.
    """
    operator = cluster.operator
    with operator.running("job", "train", "--epochs", "12") as training, chromium() as browser:
        training.wait_for("train: epoch   8/12")
        with brought_here(cluster.lab, HUB, 9203) as address, looking(browser, address) as seen:
            expect(seen.page.locator("canvas:visible")).not_to_have_count(0)
            picture(seen.page, "page")
            seen.looks_well()
        training.end(0)
    report = operator.newest("*-train/report.html")
    with chromium() as browser, looking(browser, report.as_uri()) as seen:
        picture(seen.page, "report")
        seen.looks_well()
