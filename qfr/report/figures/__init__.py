"""The only room that imports plotly: plain chart data in, plotly's JSON out, safe inside a script element.

- `palette`: colours for light and dark ground
- `draw`: charts (`qfr.report.charts`), and the map of outcomes by task, site and cell
- `images`: all of them as image files
"""
