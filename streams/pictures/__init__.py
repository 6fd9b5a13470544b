"""Pictures as SVG: of pipelines, automata and workflows, and curves on axes."""
