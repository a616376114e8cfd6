import js from "@eslint/js";
import globals from "globals";

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
    },
  },
  { files: ["js/**/*.js"], languageOptions: { globals: globals.browser } },
  { files: ["*.js", "tests/**/*.js"], languageOptions: { globals: globals.node } },
];
