import assert from "node:assert/strict";
import { test } from "node:test";
import { describeScope } from "../js/answer_scope.js";

const asked = { library_ids: ["l"], document_ids: ["d"], reason: "explicit" };
const describe = (scope, names) => describeScope({ scope, sources: [{}] }, { getDocumentName: (id) => names[id] ?? "", listEarlier: () => [] });

test("a library that was searched is told as one, whether or not the reader may still open it", () => {
  assert.equal(describe(asked, { l: "Handbook" }), "scope.libraries");
  assert.equal(describe(asked, {}), "scope.libraries_unnamed");
});
