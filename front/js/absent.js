// Replaces a package that a bundle leaves out; see build.js.

export default null;
