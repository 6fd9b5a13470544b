"use strict";

// The token is in the fragment, which browsers send to no server; links pass it on.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const headers = token ? { Authorization: `Bearer ${token}` } : {};
const byId = (id) => document.getElementById(id);

function say(text) {
  byId("message").hidden = !text;
  byId("message").textContent = text;
}

function show(found) {
  byId("none").hidden = found.length > 0;
  byId("pipelines").replaceChildren(...found.map((one) => {
    const line = document.createElement("tr");
    const name = document.createElement("a");
    name.href = `${one.name}/${location.hash}`;
    name.textContent = one.name;
    const numbers = ["in", "finished", "failed", "waiting", "in_flight"].map((of) => one[of].toLocaleString("en"));
    for (const cell of [name, one.state, ...numbers]) line.insertCell().append(cell);
    return line;
  }));
}

async function ask() {
  try {
    const response = await fetch("pipelines", { headers });
    if (response.ok) {
      show(await response.json());
      say("");
    } else {
      say(response.status === 401 ? "This page needs the token: open the address with #token=… at its end." : await response.text());
    }
  } catch {
    say("The server does not answer");
  }
  setTimeout(ask, 2000);
}

addEventListener("hashchange", () => location.reload());
ask();
