// Looks at every page of the built site in a headless browser: links and anchors, errors,
// a phone's width and a small screen's, light and dark, blocks to copy, search. CHROMIUM names the browser;
// PICTURES=DIR keeps a picture of some pages.
import { createServer } from 'node:http'
import { existsSync, mkdirSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'

const dir = fileURLToPath(new URL('../bin/site', import.meta.url))
const faults = []
const server = createServer(answer).listen(0, '127.0.0.1')
await new Promise(resolve => server.once('listening', resolve))
const origin = `http://127.0.0.1:${server.address().port}`
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
})
try {
  const pages = await look()
  links(pages)
  await search()
  await pictures()
  console.log(`${pages.size} pages, ${[...pages.values()].reduce((n, p) => n + p.links.length, 0)} links, ${faults.length} faults`)
} finally {
  await browser.close()
  server.close()
}
for (const fault of faults) console.error(fault)
process.exit(faults.length > 0 ? 1 : 0)

// answer serves a file as static hosts do: a page's address is its name without .html.
function answer (request, response) {
  const path = decodeURIComponent(new URL(request.url, 'http://site').pathname)
  const file = [path, `${path}.html`, join(path, 'index.html')].map(p => join(dir, p)).find(p => existsSync(p) && statSync(p).isFile())
  const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json', '.woff2': 'font/woff2' }
  response.writeHead(file ? 200 : 404, { 'Content-Type': types[extname(file ?? '')] ?? 'text/plain' })
  response.end(file ? readFileSync(file) : 'not found')
}

// look opens every page on a phone, in light and dark, and returns what is on it.
async function look () {
  const pages = new Map()
  const tab = await browser.newPage({ viewport: { width: 390, height: 844 } })
  let at = ''
  tab.on('pageerror', e => faults.push(`${at}: ${e.message.split("\n")[0]}`))
  tab.on('console', m => m.type() === 'error' && faults.push(`${at}: ${m.text()}`))
  for (const file of readdirSync(dir, { recursive: true }).filter(f => f.endsWith('.html') && f !== '404.html').sort()) {
    at = '/' + file.replace(/(index)?\.html$/, '')
    for (const colorScheme of ['light', 'dark']) {
      await tab.emulateMedia({ colorScheme })
      await open(tab, at)
      const page = await tab.evaluate(() => ({
        dark: document.documentElement.classList.contains('dark'),
        tooWide: document.documentElement.scrollWidth - innerWidth,
        ids: [...document.querySelectorAll('[id]')].map(e => e.id),
        links: [...document.querySelectorAll('a[href]')].map(a => a.href),
        pictures: [...document.images].filter(i => i.naturalWidth === 0).map(i => i.src),
      }))
      if (page.dark !== (colorScheme === 'dark')) faults.push(`${at}: does not follow ${colorScheme}`)
      if (page.tooWide > 0) faults.push(`${at}: ${page.tooWide} pixels too wide for a phone`)
      for (const src of page.pictures) faults.push(`${at}: the picture ${src} does not load`)
      pages.set(at, page)
    }
    await desktop(tab, at)
  }
  await tab.close()
  return pages
}

// desktop looks at the page, which is open, on a small screen: no table is cut off, every
// block can be copied and has colors, and the sidebar has titles.
async function desktop (tab, at) {
  const phone = tab.viewportSize()
  await tab.setViewportSize({ width: 1300, height: 900 })
  const seen = await tab.evaluate(() => ({
    tables: [...document.querySelectorAll('.vp-doc table')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText.split('\n')[0]),
    blocks: [...document.querySelectorAll('.vp-doc pre')].filter(e => !e.classList.contains('shiki') || !e.parentElement.querySelector('button.copy')).map(e => e.innerText.split('\n')[0]),
    names: [...document.querySelectorAll('.VPSidebarItem .text')].map(e => e.innerText).filter(text => text.endsWith('.md')),
  }))
  for (const table of seen.tables) faults.push(`${at}: the table "${table}" is cut off`)
  for (const block of seen.blocks) faults.push(`${at}: the block "${block}" has no colors, or no button to copy it`)
  for (const name of seen.names) faults.push(`${at}: the sidebar has the name of a file, ${name}`)
  await tab.setViewportSize(phone)
}

async function open (tab, path) {
  await tab.goto(origin + path, { waitUntil: 'networkidle' })
}

// links follows what stays on the site.
function links (pages) {
  for (const [at, page] of pages) {
    for (const href of new Set(page.links)) {
      const url = new URL(href)
      if (url.origin !== origin) continue
      const target = pages.get(url.pathname)
      const id = decodeURIComponent(url.hash.slice(1))
      if (!target) faults.push(`${at}: ${url.pathname} is not there`)
      else if (id && !target.ids.includes(id)) faults.push(`${at}: ${url.pathname} has no ${url.hash}`)
    }
  }
}

// search finds a message by its exact words.
async function search () {
  const tab = await browser.newPage()
  await open(tab, '/')
  await tab.click('.DocSearch-Button')
  await tab.fill('.search-input', 'no volume plugin matched')
  const found = await tab.waitForSelector('#localsearch-list a', { timeout: 10_000 }).catch(() => null)
  if (!found) faults.push('search: "no volume plugin matched" is not found')
  await tab.close()
}

async function pictures () {
  if (!process.env.PICTURES) return
  mkdirSync(process.env.PICTURES, { recursive: true })
  for (const [size, viewport] of Object.entries({ phone: { width: 390, height: 844 }, desktop: { width: 1300, height: 900 } })) {
    for (const colorScheme of ['light', 'dark']) {
      const tab = await browser.newPage({ viewport, colorScheme })
      for (const [name, path] of Object.entries({ home: '/', cifs: '/docs/cifs', presets: '/docs/presets', troubleshooting: '/docs/troubleshooting' })) {
        await open(tab, path)
        await tab.screenshot({ path: join(process.env.PICTURES, `${name}-${size}-${colorScheme}.png`) })
      }
      await tab.close()
    }
  }
}
