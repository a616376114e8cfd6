// Passkeys: the forms `data-passkey` get a credential from the browser (`get`) or create one (`create`), and submit it.
//
// The options are in the page (#passkey-options) or at the address `data-options`.

const canUsePasskeys = typeof globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON === "function";

async function readOptions(form) {
  if (!form.dataset.options) return JSON.parse(document.getElementById("passkey-options")?.textContent ?? "{}");
  const response = await fetch(form.dataset.options, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(`passkey options: ${response.status}`);
  return response.json();
}

/** Create a credential; if `isAlone`, a passkey that is enough to sign in without a password. */
function createCredential(options, isAlone) {
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options.creation_options.publicKey);
  publicKey.authenticatorSelection = {
    ...publicKey.authenticatorSelection,
    residentKey: isAlone ? "required" : "discouraged",
    requireResidentKey: isAlone,
    ...(isAlone && { userVerification: "required" }),
  };
  return navigator.credentials.create({ publicKey });
}

function getCredential(options) {
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options.request_options.publicKey);
  return navigator.credentials.get({ publicKey });
}

async function sendCredential(form) {
  const options = await readOptions(form);
  const isAlone = Boolean(form.querySelector("[name=passwordless]")?.checked);
  const made = form.dataset.passkey === "create" ? createCredential(options, isAlone) : getCredential(options);
  const credential = /** @type {any} */ (await made);
  form.querySelector("[name=credential]").value = JSON.stringify(credential.toJSON());
  form.submit();
}

for (const form of /** @type {NodeListOf<HTMLFormElement>} */ (document.querySelectorAll("form[data-passkey]"))) {
  form.hidden = !canUsePasskeys;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const failed = /** @type {HTMLElement | null} */ (document.querySelector("[data-passkey-failed]"));
    if (failed) failed.hidden = true;
    sendCredential(form).catch(() => {
      if (failed) failed.hidden = false;
    });
  });
}
