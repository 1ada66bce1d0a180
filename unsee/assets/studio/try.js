// One image: dropped, pasted, chosen or photographed. It is drawn here and sent to this computer's own model.
import { $, all, ask, make, problem } from "./common.js";
import { droppable } from "./dropping.js";

const form = $("#try"), place = $("#answer"), canvas = $("#seen");
const MOST = 30 * 2 ** 20;
let last = null;

function column(title, about, pairs, none) {
  const found = make("section", "", "card");
  found.append(make("h2", title), make("p", about, "quiet"));
  if (!pairs || !pairs.length) found.append(make("p", none));
  else {
    const list = make("ol", "", "answers");
    for (const { name, sure, share, gone } of pairs) {
      const item = make("li");
      const bar = document.createElement("meter");
      bar.value = share;
      bar.setAttribute("aria-label", `${name} ${sure}`);
      item.append(make("span", `${name} ${sure}`), gone ? make("b", "forget", "tag") : "", bar);
      list.append(item);
    }
    found.append(list);
  }
  return found;
}

async function draw(file) {
  try {
    const image = await createImageBitmap(file);
    const scale = Math.min(224 / image.width, 224 / image.height);
    canvas.width = Math.max(1, image.width * scale);
    canvas.height = Math.max(1, image.height * scale);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.hidden = false;
  } catch {
    canvas.hidden = true;  // a format that the browser does not know; the model may
  }
}

async function send(file) {
  if (!file) return;
  last = file;
  try {
    if (file.size > MOST) throw new Error(`The image has ${Math.round(file.size / 2 ** 20)} MB; at most 30 are taken. Make it smaller.`);
    place.replaceChildren(make("p", "Asking the model …", "quiet"));
    await draw(file);
    const body = new FormData();
    body.append("run", form.elements.run.value);
    body.append("labels", form.elements.labels.value);
    body.append("image", file, file.name || "pasted");
    const found = await ask("/try", { method: "POST", body });
    const columns = make("div", "", "columns");
    columns.append(
      column("Before", "The plain prompt.", found.before, "This model answers no plain-text prompt."),
      column("Prompt alone", "The prompt that the run found.", found.alone, ""),
      column("After, as served", `By the rule ${found.rule}: ${found.about}.`, found.served, "No label: several are equally sure."),
    );
    place.replaceChildren(columns);
  } catch (error) {
    if (file.size > MOST) canvas.hidden = true;
    place.replaceChildren(problem(error));
  }
}

if (form) {
  droppable($("#drop"), (transfer) => send(transfer.files[0]));
  $("#image").addEventListener("change", (event) => send(event.target.files[0]));
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files][0];
    if (file) send(file);
  });
  for (const field of [form.elements.run, form.elements.labels]) field.addEventListener("change", () => send(last));
  form.addEventListener("submit", (event) => event.preventDefault());
}
