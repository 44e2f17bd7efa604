// The live page's own part: charts take their data from the stream, and a lost connection is said and mended.
"use strict";
(() => {
  const AGAIN_MILLISECONDS = 2000;
  const page = document.body;
  const lost = document.getElementById("lost");
  let stream = null;
  let waiting = null;
  let ended = "";

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
    lost.textContent = ended
      ? `The job has ended (${ended}), and with it this page's server: what you see is how it ended. The page goes on with the next job; report.html in the run's folder stays.`
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
