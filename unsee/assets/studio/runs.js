// The list: rows follow the runs, ticks stay, filters act at once.
import { $, all, ask, listen } from "./common.js";

const rows = $("#rows");
const ticked = () => all("input[name=run]:checked").map((box) => box.value);

function count() {
  const n = ticked().length;
  $("#ticked").textContent = n < 2 ? "Tick two or more finished runs." : `${n} runs ticked.`;
  $("#compare button").disabled = n < 2;
}

let busy = false;
async function refresh() {
  if (busy) return;
  busy = true;
  try {
    const query = new URLSearchParams(location.search);
    query.set("part", "rows");
    const kept = new Set(ticked());
    const text = await ask(`/?${query}`);
    const focused = document.activeElement?.closest?.("#rows") ? document.activeElement : null;
    const same = focused && (focused.getAttribute("href") || focused.value);
    rows.innerHTML = text;
    for (const box of all("input[name=run]", rows)) {
      box.checked = kept.has(box.value);
      if (same && box.value === same) box.focus();
    }
    if (same?.startsWith?.("/")) $(`a[href="${CSS.escape(same)}"]`, rows)?.focus();
    if ($("#compare").hidden) location.reload();  // the first run of an empty list
    count();
  } catch {
    // the next event, or the next try of the stream, brings it
  } finally {
    busy = false;
  }
}

rows.addEventListener("change", count);
for (const choice of all(".filters select")) choice.addEventListener("change", () => choice.form.requestSubmit());
count();
listen("/events", rows.dataset.digest, { runs: refresh }, refresh);
