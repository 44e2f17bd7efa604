// The live page's own part: charts take their data from the stream, and a lost connection is said and mended.
"use strict";
(() => {
  const AGAIN_MILLISECONDS = 2000;
  const page = document.body;
  const lost = document.getElementById("lost");
  let stream = null;
  let waiting = null;
  let ended = "";
  const ENDED = { done: "is done", cancelled: "was cancelled", failed: "has failed" };

  page.addEventListener("htmx:sseBeforeMessage", (event) => {
    const figure = event.target;
    if (!figure.matches("figure.chart")) return;
    event.preventDefault(); // it is data, not a piece of the page
    Charts.draw(figure, JSON.parse(event.detail.data));
  });
  page.addEventListener("htmx:sseMessage", (event) => {
    const line = event.target.id === "head" ? event.target.querySelector("[data-layout]") : null;
    if (line && line.dataset.layout !== page.dataset.layout) location.reload(); // another job, another page
  });
  page.addEventListener("htmx:sseOpen", (event) => {
    if (event.detail.source !== stream) {
      stream = event.detail.source;
      stream.addEventListener("closing", (closing) => { ended = JSON.parse(closing.data).state; });
    }
    clearInterval(waiting);
    waiting = null;
    ended = "";
    lost.textContent = "";
    page.classList.remove("away");
  });
  page.addEventListener("htmx:sseError", () => {
    page.classList.add("away");
    // The head has it too: the last event may be lost, and a browser that reconnects meets a server that is just closing.
    const head = document.querySelector("#head [data-state]");
    const state = ended || (head ? head.dataset.state : "");
    lost.textContent = ENDED[state]
      ? `The job ${ENDED[state]}: its report is ${head && head.dataset.run ? `${head.dataset.run}/` : ""}report.html in the folder of the runs. This page shows how it ended, and goes on with the next job.`
      : "Connection lost: the coordinator is being brought back, or this machine lost sight of it. What you see is the last that came; reconnecting …";
    waiting ??= setInterval(again, AGAIN_MILLISECONDS);
  });

  // The browser reconnects by itself as a rule; where it gave up, the page is loaded again as soon as somebody answers.
  async function again() {
    if (stream && stream.readyState !== EventSource.CLOSED) return;
    try {
      const answer = await fetch("api/status", { cache: "no-store" });
      if (answer.ok) location.reload();
    } catch {
      // nobody there yet
    }
  }
})();
