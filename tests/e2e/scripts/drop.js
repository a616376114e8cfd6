// Drags files over the page and drops them.
(files) => {
  const data = new DataTransfer();
  for (const { name, type, base64 } of files) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    data.items.add(new File([bytes], name, { type }));
  }
  for (const kind of ["dragenter", "dragover", "drop"]) {
    const about = { dataTransfer: data, bubbles: true, cancelable: true };
    document.querySelector("main").dispatchEvent(new DragEvent(kind, about));
  }
}
