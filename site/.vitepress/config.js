import { existsSync, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, posix, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { slug } from 'github-slugger'
import { defineConfig } from 'vitepress'

const root = fileURLToPath(new URL('../..', import.meta.url))
const repository = 'https://github.com/flex2csi/flex2csi'
// What of the repository is a page. All else that documents link to is source.
const pages = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md', 'SUPPORT.md', 'GOVERNANCE.md', 'docs/**/*.md', 'install/chart/flex2csi/README.md']

export default defineConfig({
  title: 'flex2csi',
  description: 'Run FlexVolumes on CSI drivers, and migrate them to CSI in place',
  srcDir: '..',
  srcExclude: ['**/node_modules/**', 'site/**', 'test/**', 'tools/**', 'bin/**', 'hack/**', 'pkg/**', 'internal/**', 'cmd/**'],
  outDir: '../bin/site',
  cacheDir: '../bin/site-cache',
  rewrites: name => name.replace(/README\.md$/, 'index.md'),
  cleanUrls: true,
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  lastUpdated: false,
  // The pages are outside of this folder, which has the modules.
  vite: { resolve: { alias: { vue: dirname(createRequire(import.meta.url).resolve('vue/package.json')) } }, build: { chunkSizeWarningLimit: 2000 } },
  markdown: {
    anchor: { slugify: text => slug(text) }, // documents link to the anchors that GitHub makes
    config: md => {
      md.core.ruler.push('links to source', state => sourceLinks(state))
      // An indented block is commands: with colors and a button to copy it, as a fenced one.
      md.renderer.rules.code_block = (tokens, i, ...rest) => {
        tokens[i].info = 'sh'
        return md.renderer.rules.fence(tokens, i, ...rest)
      }
      // A long name may break where a reader would break it, a short one nowhere.
      const inline = md.renderer.rules.code_inline
      md.renderer.rules.code_inline = (tokens, i, ...rest) => {
        if (/^\S{1,16}$/.test(tokens[i].content)) tokens[i].attrJoin('class', 'name')
        return inline(tokens, i, ...rest).replace(/>([^<]{17,})</, (_, text) => `>${text.replace(/(?<=\w)[./~](?=\w)/g, '$&<wbr>')}<`)
      }
    },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [{ text: 'Documents', link: '/docs/' }, { text: 'Repository', link: repository }],
    sidebar: sidebar(),
    editLink: { pattern: `${repository}/blob/main/:path`, text: 'This page in the repository' },
  },
})

// sidebar is the index of the documents: a heading and its table are a group, with the
// titles of the pages that the first column links to.
function sidebar () {
  const groups = []
  for (const line of readFileSync(join(root, 'docs/README.md'), 'utf8').split('\n')) {
    const heading = line.match(/^## (.*)/)
    if (heading) groups.push({ text: heading[1], collapsed: false, items: [] })
    const names = line.split('|')[1] ?? ''
    for (const [, link] of names.matchAll(/\]\(([^)]+)\)/g)) groups.at(-1)?.items.push(item(posix.join('docs', link)))
  }
  // make manual makes them, and the index of the repository has no link to what is in no commit.
  for (const program of ['flex2csi', 'flexdriver']) groups.find(g => g.text === 'Reference').items.push(item(`docs/reference/${program}.md`))
  return groups
}

// item is a document in the sidebar. What is no page is in the repository.
function item (name) {
  const text = readFileSync(join(root, name), 'utf8').match(/^##? (.*)/m)[1]
  return isPage(name)
    ? { text, link: '/' + name.replace(/README\.md$/, '').replace(/\.md$/, '') }
    : { text, link: `${repository}/blob/main/${name}` }
}

// sourceLinks points what is no page to the repository.
function sourceLinks (state) {
  const from = join(root, dirname(state.env.relativePath === undefined ? '' : relative(root, state.env.path)))
  const visit = tokens => {
    for (const token of tokens) {
      if (token.children) visit(token.children)
      const href = token.type === 'link_open' ? token.attrGet('href') : null
      if (!href || /^([a-z]+:|#|\/)/.test(href)) continue
      const target = join(from, decodeURI(href.replace(/#.*/, '')))
      const name = relative(root, target)
      if (isPage(name)) {
        token.attrSet('href', './' + href.replace('README.md', '')) // as rewritten
        continue
      }
      if (!existsSync(target)) throw new Error(`${state.env.path} links to ${href}, which is not there`)
      const kind = statSync(target).isDirectory() ? 'tree' : 'blob'
      token.attrSet('href', `${repository}/${kind}/main/${name}${href.match(/#.*/)?.[0] ?? ''}`)
    }
  }
  visit(state.tokens)
}

function isPage (name) {
  return pages.includes(name) || /^docs\/.*\.md$/.test(name)
}
