"""The page's tables: `specs` says what a table is and how one is declared, `formats` how numbers are written;
then one module for each part of the page.
"""
