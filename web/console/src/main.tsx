import "./theme.css";
import "./styles.css";
import "./theme.ts";
import { render } from "preact";
import { App, begin } from "./app.tsx";

const root = document.getElementById("app");
if (root) render(<App />, root);
void begin();
