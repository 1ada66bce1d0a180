// A place to drop files on, with a sign that it is one; folders are walked through.

export function droppable(place, take) {
  const over = (event) => {
    event.preventDefault();
    place.classList.add("over");
  };
  place.addEventListener("dragenter", over);
  place.addEventListener("dragover", over);
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    take(event.dataTransfer);
  });
}

// Files of a drop with their paths, folders included.
export async function walk(transfer) {
  const dropped = [...transfer.items].map((item) => [item.webkitGetAsEntry?.(), item.getAsFile()]);
  const found = [];
  const visit = async (entry) => {
    if (entry.isFile) {
      const file = await new Promise((good, bad) => entry.file(good, bad));
      return found.push({ file, path: entry.fullPath.replace(/^\//, "") });
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((good, bad) => reader.readEntries(good, bad));
      if (!some.length) return;
      for (const each of some) await visit(each);
    }
  };
  for (const [entry, file] of dropped) {
    if (entry) await visit(entry);
    else if (file) found.push({ file, path: file.name });  // not every file has an entry
  }
  return found;
}
