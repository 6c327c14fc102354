// Verifies deliveries with the library that receivers use: one JSON object a line, {secret, headers, body (base64)}.
const { Webhook } = require("standardwebhooks");
const lines = require("fs").readFileSync(0, "utf8").trim().split("\n");
for (const line of lines) {
  const d = JSON.parse(line);
  try {
    new Webhook(d.secret).verify(Buffer.from(d.body, "base64").toString("utf8"), d.headers);
    console.log("ok");
  } catch (e) {
    console.log("refused: " + e.message);
  }
}
