// Reads an event stream with the package `eventsource` until the server says that it is over, or until there is enough,
// and prints what came. Arguments: the stream's address, the names of events, how many are enough (0: none). The key is
// in KEY; NODE_PATH says where the package is.
const { EventSource } = require("eventsource");

const [url, names, enough] = process.argv.slice(2);
const seen = { frames: [], errors: [], code: null };
const source = new EventSource(url, {
  fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, Authorization: `Bearer ${process.env.KEY}` } }),
});
const report = () => process.stdout.write(JSON.stringify(seen));
const keep = (event) => {
  seen.frames.push({ id: event.lastEventId, event: event.type, data: event.data });
  if (seen.frames.length !== Number(enough)) return;
  source.close();
  report();
};
for (const name of ["message", ...JSON.parse(names)]) source.addEventListener(name, keep);
source.addEventListener("error", (event) => {
  if (source.readyState !== EventSource.CLOSED) return seen.errors.push(event.message ?? "");
  seen.code = event.code ?? null;
  // Long enough for a client that comes back although it was told not to.
  setTimeout(report, 500);
});
