// A new uid, 32 hexadecimal digits. crypto.randomUUID is there on https and localhost only: at the address of a machine in
// a local network a queue that asked for it was dead. It stands in one module with the script of each component that
// needs it.
const newUid = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
