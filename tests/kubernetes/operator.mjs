// Judges documents of the Prometheus operator, a JSON list on standard input, by its published schemas. What is wrong
// goes to standard output as a JSON list of texts. The schemas let keys pass that they do not know; the test that calls
// this looks at keys itself.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const folder = `${process.argv[2]}/node_modules/@kubernetes-models/prometheus-operator`;
const models = await import(pathToFileURL(`${folder}/monitoring.coreos.com/v1/index.js`));
const wrong = [];
for (const found of JSON.parse(readFileSync(0, 'utf8'))) {
  try {
    new models[found.kind](found).validate();
  } catch (error) {
    wrong.push(`${found.kind}: ${error.message}`);
  }
}
console.log(JSON.stringify(wrong));
