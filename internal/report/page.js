
'use strict'
const table = document.getElementById('rows')
if (table) {
  const body = table.tBodies[0]
  const rows = [...body.rows].map(row => ({ row, cells: [...row.cells].map(c => c.textContent), text: row.textContent.toLowerCase() }))
  const filter = document.getElementById('filter')
  filter.addEventListener('input', () => {
    const words = filter.value.toLowerCase().split(/\s+/)
    let shown = 0
    for (const { row, text } of rows) {
      row.hidden = !words.every(w => text.includes(w))
      shown += row.hidden ? 0 : 1
    }
    document.getElementById('shown').textContent = `${shown} of ${rows.length}`
  })
  const { compare } = new Intl.Collator(undefined, { numeric: true })
  for (const head of table.tHead.rows[0].cells) {
    head.addEventListener('click', () => {
      const up = head.ariaSort !== 'ascending'
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null
      head.ariaSort = up ? 'ascending' : 'descending'
      const n = head.cellIndex
      rows.sort((a, b) => (up ? 1 : -1) * compare(a.cells[n], b.cells[n]))
      body.append(...rows.map(r => r.row))
    })
  }
}
