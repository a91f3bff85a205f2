// The agent of doors.py as another program, with what node has itself:
//
//     env doors = agent(command = ["node", "doors.mjs"], tasks = rows("data/doors.jsonl"))

import { readFileSync, writeFileSync } from "node:fs";

const { OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL, RLC_TASK, RLC_RESULT } = process.env;
const { task } = JSON.parse(readFileSync(RLC_TASK, "utf8"));
const parameters = { properties: { n: { type: "integer" } }, required: ["n"], type: "object" };
const press = { name: "press", description: "Press 1 to 3.", parameters };
const tools = [{ type: "function", function: press }];

async function reply(messages) {
  const answer = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${OPENAI_API_KEY}`, "content-type": "application/json" },
    body: JSON.stringify({ model: OPENAI_MODEL, messages, tools }),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()).choices[0].message;
}

async function open(messages) {
  for (const reward of [1, 0.5]) {
    const said = await reply(messages);
    if (!said.tool_calls?.length) return 0;
    messages.push(said);
    for (const { id, function: called } of said.tool_calls) {
      if (JSON.parse(called.arguments).n === 2) return reward;
      messages.push({ role: "tool", tool_call_id: id, content: "no" });
    }
  }
  return 0;
}

writeFileSync(RLC_RESULT, String(await open([{ role: "user", content: task.prompt }])));
