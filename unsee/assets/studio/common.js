// Shared by the pages: fetching with errors in words, filling numbers in, copying, an event stream that comes back.

export const $ = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

export async function ask(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, { ...options, headers: { accept: "application/json, text/html" } });
  } catch {
    throw new Error("The page's server does not answer. Is `unsee studio` still running? Its runs go on by themselves.");
  }
  const kind = answer.headers.get("content-type") || "";
  const content = kind.includes("json") ? await answer.json() : await answer.text();
  if (!answer.ok) throw new Error(content.error || `The server answered with ${answer.status}.`);
  return content;
}

export function fill(values, within = document) {
  for (const [key, text] of Object.entries(values))
    for (const place of all(`[data-value="${key}"]`, within)) place.textContent = text;
}

export function make(tag, text = "", name = "") {
  const found = document.createElement(tag);
  found.textContent = text;
  if (name) found.className = name;
  return found;
}

export function problem(error) {
  const found = make("p", error.message, "problem");
  found.setAttribute("role", "alert");
  return found;
}

// One stream per tab, closed while nobody looks: a browser allows few connections. It goes on after the last event seen.
export function listen(url, after, events, fallback) {
  let source, timer;
  const query = () => (after ? `${url}?after=${encodeURIComponent(after)}` : url);
  const open = () => {
    clearInterval(timer);
    source = new EventSource(query());
    for (const [name, act] of Object.entries(events))
      source.addEventListener(name, (event) => {
        after = event.lastEventId || after;
        act(JSON.parse(event.data), stop);
      });
    source.onopen = () => clearInterval(timer);
    source.onerror = () => {
      clearInterval(timer);
      timer = setInterval(async () => {  // the browser tries again by itself; a plain GET serves meanwhile
        if (source.readyState === EventSource.CLOSED) { source.close(); open(); }
        await fallback();
      }, 2000);
    };
  };
  const stop = () => {
    clearInterval(timer);
    source.close();
    document.removeEventListener("visibilitychange", look);
  };
  const look = () => (document.hidden ? (clearInterval(timer), source.close()) : open());
  document.addEventListener("visibilitychange", look);
  open();
  return stop;
}

addEventListener("beforeprint", () => all("details").forEach((each) => (each.open = true)));
for (const button of all("[data-copy]"))
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText($(`#${button.dataset.copy}`).textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
