import js from "@eslint/js";
import globals from "globals";

const ABSOLUTE = ":matches(Literal[value=/^\\//], TemplateLiteral[quasis.0.value.raw=/^\\//])";
const PLACES = [
  'CallExpression[callee.object.name=/^(location|history)$/]',
  'CallExpression[callee.name="fetch"]',
  "Property[key.name=/^(href|src|action)$/]",
  "AssignmentExpression[left.property.name=/^(href|src|action)$/]",
];
const message = "Below a prefix this address is another one: toAddress(path) of address.js.";

export default [
  { ignores: ["node_modules/"] },
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2023, sourceType: "module" },
    rules: {
      "eqeqeq": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", ignoreRestSiblings: true }],
      "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
      "no-var": "error",
      "prefer-const": "error",
      "no-restricted-syntax": ["error", ...PLACES.map((place) => ({ selector: `${place} > ${ABSOLUTE}`, message }))],
    },
  },
  { files: ["js/**/*.js"], languageOptions: { globals: globals.browser } },
  { files: ["*.js", "tests/**/*.js"], languageOptions: { globals: globals.node } },
];
